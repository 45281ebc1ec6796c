package main

import "os"

// nginxArguments are those that run nginx in the foreground, in a folder of its
// own.
func nginxArguments(folder, conf string) []string {
	global := "daemon off;"
	if os.Getuid() == 0 {
		global += " user root;" // the folder is root's alone
	}
	return []string{"-p", folder, "-c", conf, "-g", global}
}
