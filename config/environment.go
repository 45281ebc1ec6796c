package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ownEnvironment are the variables that mean something to the program, and
// testEnvironment those of its tests, which the program under test inherits.
var (
	ownEnvironment  = []string{SessionEnv}
	testEnvironment = []string{"POINTSMAN_CACHE", "POINTSMAN_COVERDIR", "POINTSMAN_ENGINES", "POINTSMAN_PAGE", "POINTSMAN_RACE", "POINTSMAN_SHOTS", "POINTSMAN_SOAK"}
)

// ofService matches the variables with which Kubernetes announces Services to containers
// whose names begin with pointsman.
var ofService = regexp.MustCompile(`^POINTSMAN_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// CheckEnvironment refuses variables that look as if they were meant for the
// program, and that it does not know. environ is that of os.Environ.
func CheckEnvironment(environ []string) error {
	var errs []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "POINTSMAN_") || slices.Contains(ownEnvironment, name) || slices.Contains(testEnvironment, name) || ofService.MatchString(name) {
			continue
		}
		errs = append(errs, "environment: "+unknown("variable ", name, ownEnvironment)+"; all else is set in the configuration file")
	}
	if len(errs) == 0 {
		return nil
	}
	slices.Sort(errs)
	return fmt.Errorf("%s", strings.Join(errs, "\n"))
}
