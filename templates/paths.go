package templates

import (
	"fmt"
	"path"
)

// CheckSPOEConf reports a path that cannot be HAProxy.SPOEConf.
func CheckSPOEConf(path string) error {
	if !safeWord.MatchString(path) {
		return fmt.Errorf("path of %s %q: want a path without spaces", SPOEFile, path)
	}
	return nil
}

// CheckNginxDir reports a folder that cannot be Nginx.Dir.
func CheckNginxDir(dir string) error {
	if !path.IsAbs(dir) || !nginxWord.MatchString(dir) {
		return fmt.Errorf("folder of the files %q: want an absolute path without spaces", dir)
	}
	return nil
}
