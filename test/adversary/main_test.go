package adversary

import (
	"os"
	"testing"

	"pointsman/test/rig"
)

func TestMain(m *testing.M) { os.Exit(rig.Run(m)) }
