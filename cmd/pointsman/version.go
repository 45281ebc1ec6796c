package main

import (
	"fmt"
	"runtime/debug"
)

// version is set by the linker.
var version = "dev"

type versionCmd struct{}

func (versionCmd) Run() error {
	fmt.Println(versionText())
	return nil
}

func versionText() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return fmt.Sprintf("pointsman %s (%s)", version, info.GoVersion)
	}
	return "pointsman " + version
}
