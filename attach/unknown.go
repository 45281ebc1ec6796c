package attach

import (
	"fmt"
	"strings"
)

// Unknown is the error for a name that is not in a proxy's configuration, which has others.
func Unknown(what string, known []string) error {
	if len(known) == 0 {
		return fmt.Errorf("%s; the configuration has none at all", what)
	}
	return fmt.Errorf("%s; there are: %s", what, strings.Join(known, ", "))
}
