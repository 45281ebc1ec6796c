package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"path/filepath"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// boms writes what each binary was linked from, as CycloneDX: read from the binary
// itself, and so what is really in it.
func (b *build) boms() error {
	for _, arch := range b.arches {
		info, err := buildinfo.ReadFile(b.binary(arch))
		if err != nil {
			return err
		}
		bom := cdx.NewBOM()
		bom.Metadata = &cdx.Metadata{
			Timestamp: b.stamp.Format("2006-01-02T15:04:05Z"),
			Component: &cdx.Component{BOMRef: "pointsman", Type: cdx.ComponentTypeApplication, Name: "pointsman", Version: b.version},
		}
		list := []cdx.Component{{BOMRef: "std", Type: cdx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion, PackageURL: "pkg:golang/std@" + info.GoVersion[2:]}}
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			url := "pkg:golang/" + d.Path + "@" + d.Version
			list = append(list, cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: d.Path, Version: d.Version, PackageURL: url})
		}
		bom.Components = &list
		var out bytes.Buffer
		if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
			return err
		}
		if err := write(filepath.Join(b.dist, fmt.Sprintf("pointsman_%s_linux_%s.cdx.json", b.version, arch)), out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
