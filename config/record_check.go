package config

import (
	"path/filepath"
	"strings"
)

func (v *validator) record() {
	r := &v.config.Record
	within(v, "record.max_size", r.MaxSize, 64<<10, 1<<40)
	within(v, "record.max_files", r.MaxFiles, 1, 1000)
	if r.File != "" && (!filepath.IsAbs(r.File) || !strings.HasSuffix(r.File, ".gz")) {
		v.refuse("record.file", "%s is not a file to record to; want an absolute path that ends in .jsonl.gz, such as /var/lib/pointsman/traffic.jsonl.gz", quote(r.File))
	}
}
