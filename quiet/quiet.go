// Package quiet keeps libraries from writing to a command's terminal as it starts. The
// library of the metrics logs where the kernel has no pressure figures, in whatever
// command it is linked.
//
// Go initialises packages by their imports and then by name, and this one imports as
// little as possible: it is ready before all that does more. The command sets the
// output again.
package quiet

import (
	"io"
	"log"
)

func init() { log.SetOutput(io.Discard) }
