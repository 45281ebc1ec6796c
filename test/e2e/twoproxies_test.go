package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pointsman/test/proxies"
	"pointsman/test/rig"
)

// A proxy that has a replica down is believed of its requests there after downBelieved
// at most, and after fewerBelieved where it is up and has fewer than are reserved.
const (
	downBelieved  = 3 * time.Second
	fewerBelieved = 5 * time.Second
)

// hold begins n streams through host, which end when the engines release them, or
// with an error if the proxy is killed: then fails is set.
func hold(t *testing.T, host string, n int, fails bool) (done *sync.WaitGroup) {
	done = new(sync.WaitGroup)
	client := rig.NewClient(n, false, false)
	for range n {
		done.Go(func() {
			c := rig.Held()
			if err := c.Check(c.Do(client, host)); err != nil && !fails {
				t.Errorf("a stream: %v", err)
			}
		})
	}
	return done
}

// silent keeps the engines' own counts out: the proxies alone report.
func silent(s *rig.Site) { s.Edit("max_requests: 0", `max_requests: 0, metrics: "off"`) }

// TestTwoHAProxies serves one pool by two HAProxies, of which the agent follows one.
// What that one has no more, after a reload too, ends nothing that the other serves,
// or its old worker. A process that is killed takes its own requests with it.
func TestTwoHAProxies(t *testing.T) {
	rig.OnEach(t, rig.HAProxies(t), func(t *testing.T, r rig.Release) {
		t.Parallel()
		s, engines := rig.Replicas(t, r, 2, "round_robin")
		silent(s)
		s.Patient()
		s.Start()
		release := func() {
			for _, e := range engines {
				e.Release()
			}
		}
		t.Cleanup(release)

		files, _ := s.HAProxy().Render()
		front := rig.FreeAddress(t)
		cfg := strings.NewReplacer("bind "+s.Front+"\n", "bind "+front+"\n", s.HAProxy().Runtime, filepath.Join(s.Dir, "second.sock")).Replace(files["haproxy.cfg"])
		second := proxies.Start(t, r.Bin, cfg, proxies.File{Name: "pointsman-spoe.conf", Text: files["pointsman-spoe.conf"]})
		client := rig.NewClient(1, false, false)
		before := s.Agent.Pool(rig.Pool).Decisions
		rig.Eventually(t, 10*time.Second, "the second HAProxy asks", func() (bool, string) {
			c := rig.Small(true)
			if err := c.Check(c.Do(client, front)); err != nil {
				t.Error(err)
			}
			return s.Agent.Pool(rig.Pool).Decisions > before, ""
		})
		s.Agent.Settled(rig.Pool)

		// The first one has the replicas down, and no request there.
		others := hold(t, front, 10, false)
		s.AwaitReservations(10)
		for _, e := range engines {
			s.HAProxy().State(e.Name, "maint")
		}
		for _, e := range engines {
			s.AwaitState(e.Name, 5*time.Second, "down")
		}
		time.Sleep(downBelieved)
		if n := s.Agent.Pool(rig.Pool).Reservations; n != 10 {
			t.Errorf("with the replicas in maintenance at one HAProxy, %d streams of the other are counted, want 10", n)
		}
		for _, e := range engines {
			s.HAProxy().State(e.Name, "ready")
			s.AwaitState(e.Name, 5*time.Second, "up")
		}

		// Its old worker goes on with streams that the new one does not know.
		own := hold(t, s.Front, 4, false)
		s.AwaitReservations(14)
		s.Proxy.Reload()
		s.Serve(client, 4)
		time.Sleep(fewerBelieved)
		if n := s.Agent.Pool(rig.Pool).Reservations; n != 14 {
			t.Errorf("after a reload %d streams are counted, want 14", n)
		}
		rig.ReleaseAll(t, 14, engines...)
		own.Wait()
		others.Wait()
		s.Agent.Settled(rig.Pool)

		killed := hold(t, front, 3, true)
		s.AwaitReservations(3)
		second.Kill()
		killed.Wait()
		rig.Eventually(t, 15*time.Second, "the streams of the killed HAProxy are not counted", func() (bool, string) {
			p := s.Agent.Pool(rig.Pool)
			return p.Reservations == 0, fmt.Sprintf("%+v", p)
		})
	})
}

// TestHAProxyBesideNginx has an HAProxy take its replicas out that an nginx uses yet,
// with the same agent.
func TestHAProxyBesideNginx(t *testing.T) {
	t.Parallel()
	nginxes, haproxies := rig.Nginxes(t), rig.HAProxies(t)
	n, engines := rig.Replicas(t, nginxes[len(nginxes)-1], 2, "round_robin")
	silent(n)
	h := rig.NewFront(t, haproxies[len(haproxies)-1], n.Dir)
	h.Agent, h.Feed = n.Agent, n.Feed
	n.Edit("spoe: off", h.Proxy.Listen())
	n.Edit("pools:", h.Proxy.Section()+"\npools:")
	n.Start()
	h.Proxy.Start()
	h.Proxy.AwaitAgent()
	streams := hold(t, n.Front, 10, false)
	n.AwaitReservations(10)
	for _, e := range engines {
		h.HAProxy().State(e.Name, "maint")
	}
	for _, e := range engines {
		h.AwaitState(e.Name, 5*time.Second, "down")
	}
	time.Sleep(downBelieved)
	if got := n.Agent.Pool(rig.Pool).Reservations; got != 10 {
		t.Errorf("with the replicas in maintenance at HAProxy, %d streams of nginx are counted, want 10", got)
	}
	rig.ReleaseAll(t, 10, engines...)
	streams.Wait()
	n.Agent.Settled(rig.Pool)
}
