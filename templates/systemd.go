package templates

import (
	"embed"
	"path"
)

//go:embed systemd
var units embed.FS

// Systemd returns the unit files of the agent, and the sysusers file that
// makes its account.
func Systemd() []File {
	entries, err := units.ReadDir("systemd")
	if err != nil {
		panic(err) // embedded at build time
	}
	var files []File
	for _, e := range entries {
		text, err := units.ReadFile(path.Join("systemd", e.Name()))
		if err != nil {
			panic(err)
		}
		files = append(files, File{Name: e.Name(), Text: string(text)})
	}
	return files
}
