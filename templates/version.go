package templates

import (
	"fmt"
	"regexp"
	"strconv"
)

// Version is a proxy's release line, for instance 3.2.
type Version struct{ Major, Minor int }

// Oldest is the oldest HAProxy that the templates render for.
var Oldest = Version{2, 6}

var versionPattern = regexp.MustCompile(`^\s*(?:HA-?Proxy\s+version\s+)?(\d{1,3})\.(\d{1,3})(?:[^\d]|$)`)

// ParseVersion reads a release such as "3.2" or "2.6.12-1+deb12u4", or the
// whole output of `haproxy -v`.
func ParseVersion(s string) (Version, error) {
	m := versionPattern.FindStringSubmatch(s)
	if m == nil {
		return Version{}, fmt.Errorf("no HAProxy version in %.60q; want the like of 3.2, or what `haproxy -v` prints", s)
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return Version{major, minor}, nil
}

// Check reports a release that the templates do not render for.
func (v Version) Check() error {
	if !v.AtLeast(Oldest.Major, Oldest.Minor) {
		return fmt.Errorf("HAProxy %v is too old; want %v or later", v, Oldest)
	}
	return nil
}

// AtLeast reports whether v is the release major.minor or a later one.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// String gives the form "3.2".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// ringsOverUnix reports whether a ring connects again to a unix socket. That of 3.0
// and 3.1 does so only after a reset, which a unix socket does not have.
func (v Version) ringsOverUnix() bool { return !v.AtLeast(3, 0) || v.AtLeast(3, 2) }
