package attach

import (
	"strings"

	"pointsman/misuse"
)

// Unknown is the error for a name that is not in a proxy's configuration, which has others.
func Unknown(what string, known []string) error {
	if len(known) == 0 {
		return misuse.Errorf("%s; the configuration has none at all", what)
	}
	return misuse.Errorf("%s; there are: %s", what, strings.Join(known, ", "))
}
