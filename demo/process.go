package demo

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a child whose output is kept for the case that it fails.
type process struct {
	name   string
	cmd    *exec.Cmd
	output lockedBuffer
	ended  chan struct{}
}

// lockedBuffer keeps the last part of what is written to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() > 64<<10 {
		l.b.Next(32 << 10)
	}
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start adds a process to the stage. It dies with the demo.
func (s *stage) start(name, command string, args ...string) error {
	p := &process{name: name, cmd: exec.Command(command, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() { _ = p.cmd.Wait(); close(p.ended) }()
	s.procs = append(s.procs, p)
	return nil
}

// stop ends the process, by force after a while.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(2 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// await polls url until it answers 200. It fails, with what the process wrote,
// when that ends or takes too long.
func (s *stage) await(ctx context.Context, url, name string) error {
	var p *process
	for _, q := range s.procs {
		if q.name == name {
			p = q
		}
	}
	var err error
	for range 200 {
		if _, err = fetch(ctx, url); err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended at its start:\n%s", name, strings.TrimSpace(p.output.String()))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s does not serve: %w\n%s", name, err, strings.TrimSpace(p.output.String()))
}
