package state

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"pointsman/decider"
	"pointsman/test/proxies"
)

// mounted is a folder with a file system of its own: that of a mount with these
// arguments. Without the rights to it the test is skipped.
func mounted(t *testing.T, args ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		proxies.Missing(t, "a mount needs root")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", append(args, dir)...).CombinedOutput(); err != nil {
		proxies.Missing(t, "nothing can be mounted here: %v %s", err, out)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestFullDisk: on a disk that is full the last state stays as it was, whole, and is
// written again when there is room.
func TestFullDisk(t *testing.T) {
	dir := mounted(t, "-t", "tmpfs", "-o", "size=64k", "tmpfs")
	a := begin(t, dir)
	a.keeper.Restore()
	a.fill()
	a.keeper.write()
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	a.fill()
	for range 3 {
		a.keeper.write()
	}
	if s := a.keeper.Status(); s.Failures != 3 || s.Writes != 1 || a.log.lines("cannot be written") != 1 {
		t.Errorf("%+v, logs %s", s, a.log.b.String())
	}
	if l, err := load(dir, time.Now()); err != nil || len(l.pools) != 1 {
		t.Errorf("the last state: %+v, %v", l, err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
	if err := os.Remove(big); err != nil {
		t.Fatal(err)
	}
	a.keeper.write()
	if s := a.keeper.Status(); s.Writes != 2 || a.log.lines("written again") != 1 {
		t.Errorf("%+v, logs %s", s, a.log.b.String())
	}
}

// TestStuckDisk: while a write hangs, requests are decided, and the end does not wait
// for it for long.
func TestStuckDisk(t *testing.T) {
	if os.Getenv("POINTSMAN_SOAK") != "1" {
		t.Skip("a file system is frozen; POINTSMAN_SOAK=1 runs it")
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, make([]byte, 16<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		proxies.Missing(t, "no file system: %v %s", err, out)
	}
	dir := mounted(t, "-o", "loop", image)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	a := begin(t, dir)
	a.keeper.Restore()
	a.fill()
	a.keeper.write()

	thaw := exec.Command("sh", "-c", "sleep 8; fsfreeze -u "+dir) // also if the test is killed
	if err := thaw.Start(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("fsfreeze", "-f", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		<-a.keeper.writing
		a.keeper.write()
		a.keeper.writing <- struct{}{}
	}()
	time.Sleep(500 * time.Millisecond) // until it hangs
	longest := time.Duration(0)
	for range 2000 {
		began := time.Now()
		d, id := a.Send(func(r *decider.Request) { r.Input = 100 })
		a.End(id, d.Server)
		longest = max(longest, time.Since(began))
	}
	select {
	case <-written:
		t.Fatal("the write does not hang")
	default:
	}
	began := time.Now()
	a.keeper.Close()
	if took := time.Since(began); took < lastWrite || took > lastWrite+2*time.Second {
		t.Errorf("the end took %v, want %v", took, lastWrite)
	}
	if a.log.lines("too slow") != 1 {
		t.Error(a.log.b.String())
	}
	if longest > 500*time.Millisecond {
		t.Errorf("a request took %v", longest)
	}
	_ = thaw.Wait()
	<-written
	if l, err := load(dir, time.Now()); err != nil || len(l.pools) != 1 {
		t.Errorf("the state: %+v, %v", l, err)
	}
}
