package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"pointsman/config"
	"pointsman/nginx"
	"pointsman/templates"
)

// nginx renders the complete set and has nginx check it, then looks at the
// user's own configuration.
func (c *checkCmd) nginx(conf *config.Config) error {
	o, err := nginxOptions(conf)
	if err != nil {
		return err
	}
	binary, _ := exec.LookPath("nginx") // "" when there is none
	if c.NginxConfig == "" {
		return checkNginxRendered(o, binary)
	}
	advice, err := nginx.Advise(c.NginxConfig, conf.Listen.Feed)
	if err != nil {
		return err
	}
	for _, a := range advice {
		fmt.Printf("%s: %s\n", c.NginxConfig, a)
	}
	if binary == "" {
		fmt.Println("nginx: not in the path, so the configuration was not tried")
	} else if err := nginxChecks(binary, "-c", c.NginxConfig); err != nil {
		return fmt.Errorf("%s: %w", c.NginxConfig, err)
	} else {
		fmt.Printf("%s: nginx accepts it\n", c.NginxConfig)
	}
	if len(advice) > 0 {
		return errors.New("something is missing: `pointsman render nginx --attach` prints the lines")
	}
	return nil
}

// checkNginxRendered has nginx check the complete set in a folder of its own.
func checkNginxRendered(o templates.Nginx, binary string) error {
	folder, err := os.MkdirTemp("", "pointsman-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	o.Folder = folder
	files, err := templates.RenderNginx(o)
	if err != nil {
		return err
	}
	if binary == "" {
		fmt.Println("nginx: not in the path, so what is rendered for it was not tried")
		return nil
	}
	if err := writeFiles(folder, files); err != nil {
		return err
	}
	if err := nginxChecks(binary, nginxArguments(folder, filepath.Join(folder, templates.NginxFile))...); err != nil {
		return fmt.Errorf("the rendered configuration: %w", err)
	}
	fmt.Println("nginx: accepts the rendered configuration")
	return nil
}

// nginxChecks runs nginx -t.
func nginxChecks(binary string, args ...string) error {
	if out, err := exec.Command(binary, append([]string{"-t"}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("nginx -t refuses it:\n%s", strings.TrimSpace(string(out)))
	}
	return nil
}
