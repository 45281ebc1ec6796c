package main

import (
	"fmt"
	"os"
	"path/filepath"
	"pointsman/sim/plot"
	"pointsman/sim/replay"
)

// plotKinds are the files that --plot can write.
var plotKinds = map[string]func([]*replay.Result) ([]byte, error){
	".svg": func(r []*replay.Result) ([]byte, error) { return plot.SVG(r), nil },
	".png": plot.PNG,
}

// checkPlot refuses a file that no plot can be written to by its name, before
// the replay is paid for.
func checkPlot(path string) error {
	if path != "" && plotKinds[filepath.Ext(path)] == nil {
		return fmt.Errorf("plot: %q, want a file that ends in .svg or .png", path)
	}
	return nil
}

// writePlot draws the results into the file at path.
func writePlot(path string, results []*replay.Result) error {
	b, err := plotKinds[filepath.Ext(path)](results)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}
