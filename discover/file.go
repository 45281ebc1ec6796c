package discover

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds a file of targets, in bytes.
const maxFile = 1 << 20

// readFile reads a file in Prometheus' file_sd format, JSON or YAML: a list of
// groups, each with targets as host:port and labels. The labels zone, node,
// weight and role have a meaning here.
func readFile(path string) ([]Replica, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	list, err := parseFile(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

func parseFile(text []byte) ([]Replica, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("larger than %d bytes", maxFile)
	}
	var groups []struct {
		Targets []string          `yaml:"targets"`
		Labels  map[string]string `yaml:"labels"`
	}
	if err := yaml.Unmarshal(text, &groups); err != nil {
		return nil, err
	}
	if groups == nil {
		return nil, fmt.Errorf("no list; want [] where there are no targets")
	}
	var list []Replica
	for _, g := range groups {
		weight := 0
		if w := g.Labels["weight"]; w != "" {
			n, err := strconv.Atoi(w)
			if err != nil || n < 1 || n > 256 {
				return nil, fmt.Errorf("weight %.60q, want 1 to 256", w)
			}
			weight = n
		}
		role := g.Labels["role"]
		switch role {
		case "", RolePrefill, RoleDecode, RoleBoth:
		default:
			return nil, fmt.Errorf("role %.60q, want %s, %s or %s", role, RolePrefill, RoleDecode, RoleBoth)
		}
		if len(list)+len(g.Targets) > maxReplicas {
			return nil, fmt.Errorf("more than %d targets", maxReplicas)
		}
		for _, t := range g.Targets {
			list = append(list, Replica{Address: t, Zone: g.Labels["zone"], Node: g.Labels["node"], Weight: weight, Role: role})
		}
	}
	return list, nil
}
