package resolve

import (
	"errors"
	"os/exec"

	"pointsman/misuse"
	"pointsman/templates"
)

// HAProxyVersion is the version to render for: the one given, else the file's,
// else that of the installed binary.
func (r *Config) HAProxyVersion() (templates.Version, error) { return r.version() }

// version reads a version as written or, where that is empty, asks the
// installed binary.
func version(written string, installed func() (string, error)) (templates.Version, error) {
	if written != "" {
		return templates.ParseVersion(written)
	}
	out, err := installed()
	if err != nil {
		return templates.Version{}, errors.New("no haproxy in the path to ask for its version: give --version, such as --version 3.2")
	}
	return templates.ParseVersion(out)
}

// checkVersion checks a version that was given on the command line; config checks that of
// the file.
func checkVersion(given string) error {
	v, err := templates.ParseVersion(given)
	if err == nil {
		err = v.Check()
	}
	return misuse.Of(err)
}

// InstalledVersion is the version of the haproxy in the path.
func InstalledVersion() (templates.Version, error) { return version("", runHAProxy) }

func runHAProxy() (string, error) {
	out, err := exec.Command("haproxy", "-v").Output()
	return string(out), err
}
