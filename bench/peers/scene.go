package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"pointsman/bench/stand"
)

// scene is one rival before replicas.
type scene struct {
	folder  string // of its files
	engines []string
	procs   *stand.Processes
	front   string // host:port at which it serves

	routing []*stand.Process // all processes on the path of a request or its decision
	brain   *stand.Process   // of these, the one that decides
	restart func() (*stand.Process, error)
}

// url is where the rival serves.
func (s *scene) url() string { return "http://" + s.front }

// run starts a rival that is one process.
func (s *scene) run(argv ...string) error {
	start := func() (*stand.Process, error) { return s.procs.Start(argv[0], argv[1:]...) }
	q, err := start()
	if err != nil {
		return err
	}
	s.routing, s.brain, s.restart = append(s.routing, q), q, start
	return nil
}

// write writes a file of the scene and returns its path.
func (s *scene) write(name, text string) (string, error) {
	path := filepath.Join(s.folder, name)
	return path, os.WriteFile(path, []byte(text), 0o644)
}

// open starts a rival before the engines and waits until it serves.
func open(r *rival, engines []string, procs *stand.Processes) (*scene, error) {
	s := &scene{engines: engines, procs: procs}
	var err error
	if s.front, err = stand.FreePort(); err != nil {
		return nil, err
	}
	if s.folder, err = os.MkdirTemp(folder, r.name+"-"); err != nil {
		return nil, err
	}
	if err := os.Chmod(s.folder, 0o755); err != nil {
		return nil, err
	}
	if err := r.start(s); err != nil {
		return nil, err
	}
	return s, s.await(startLimit)
}

// startLimit bounds the time until a rival serves. LiteLLM needs ten seconds and more.
const startLimit = 90 * time.Second

// await waits until the scene answers some requests in a row, at least one for each
// replica: by then it has learned what it learns about replicas.
func (s *scene) await(limit time.Duration) error {
	client := stand.NewClient(s.url(), 1)
	body := stand.Body(300, false)
	good := 0
	var err error
	for begun := time.Now(); time.Since(begun) < limit; {
		if _, err = stand.Post(client, s.url(), body, 5*time.Second); err == nil {
			if good++; good > 2*len(s.engines) {
				return nil
			}
			continue
		}
		good = 0
		for _, q := range s.routing {
			if output, ended := q.Ended(); ended {
				return fmt.Errorf("it ended at its start: %s", output)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	output, _ := s.routing[len(s.routing)-1].Ended()
	return fmt.Errorf("it does not serve after %v: %w\n%s", limit, err, output)
}
