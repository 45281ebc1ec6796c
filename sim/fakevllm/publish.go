package fakevllm

import (
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"time"

	"pointsman/engine/zmtp"
	"pointsman/sim"
)

// publisher sends the events of a server's KV cache over ZeroMQ, and answers
// those who ask for past ones.
type publisher struct {
	o   Options
	log *KVEvents // guarded by the server's lock

	pub     zmtp.Publisher
	servers []*zmtp.Server // none until open
	done    sync.WaitGroup
}

// peerTimeout bounds the greeting of a peer and each write to it.
const peerTimeout = 10 * time.Second

func newPublisher(o Options) *publisher {
	form := o.EventForm
	form.BlockSize = o.BlockSize
	return &publisher{o: o, log: NewKVEvents(form)}
}

// blockStored tells the log of block i of a job.
func (s *Server) blockStored(j *sim.Job, i int) {
	q := j.Owner.(*sequence)
	parent := uint64(0)
	if i > 0 {
		parent = j.Blocks[i-1]
	}
	n := s.o.BlockSize
	s.events.log.Stored(j.Blocks[i], parent, i == 0, q.tokens[i*n:(i+1)*n], q.lora, q.salt)
}

// Batches are the events of the KV cache that are kept, each as it was or would
// have been published; none without Options.Events.
func (s *Server) Batches() (list [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events != nil {
		s.events.log.Replay(0, func(_ uint64, payload []byte) { list = append(list, payload) })
	}
	return list
}

// topic is what events are published under.
var topic = []byte("kv-events")

// flush publishes what happened in a step. What nobody takes in time is lost, as
// with any publisher. The caller holds the server's lock.
func (p *publisher) flush() {
	n, payload, ok := p.log.Batch(float64(time.Now().UnixMicro()) / 1e6)
	if !ok {
		return
	}
	if lost := p.o.LoseBatch; lost != nil && lost(n) {
		return
	}
	p.pub.Send(topic, number(n), payload)
}

// open begins to publish. mu guards the log.
func (p *publisher) open(mu *sync.Mutex) error {
	if err := p.listen(p.o.Events, "PUB", p.pub.Handle); err != nil {
		return err
	}
	if p.o.Replay == "" {
		return nil
	}
	if err := p.listen(p.o.Replay, "ROUTER", func(c *zmtp.Conn) { p.replay(c, mu) }); err != nil {
		p.close()
		return err
	}
	return nil
}

// listen serves the peers that connect to an endpoint such as tcp://*:5557.
func (p *publisher) listen(endpoint, kind string, handle func(*zmtp.Conn)) error {
	address := strings.Replace(strings.TrimPrefix(endpoint, "tcp://"), "*", "", 1)
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s := &zmtp.Server{Kind: kind, Timeout: peerTimeout, Handle: handle}
	p.servers = append(p.servers, s)
	p.done.Go(func() { _ = s.Serve(l) })
	return nil
}

// replay answers one peer until its connection ends.
func (p *publisher) replay(c *zmtp.Conn, mu *sync.Mutex) {
	for {
		f, err := c.Receive() // nothing, number
		if err != nil {
			return
		}
		if len(f) != 2 || len(f[1]) != 8 {
			continue
		}
		from := binary.BigEndian.Uint64(f[1])
		if lost := p.o.LoseReplay; lost != nil && lost() {
			_ = c.Send(nil, []byte("lost"))
			continue
		}
		answer := func(n uint64, payload []byte) {
			frames := [][]byte{nil}
			if p.o.EventForm.Maps { // as versions do that have maps
				frames = append(frames, topic)
			}
			_ = c.Send(append(frames, number(n), payload)...)
		}
		type batch struct {
			number  uint64
			payload []byte
		}
		var list []batch
		mu.Lock()
		p.log.Replay(from, func(n uint64, payload []byte) { list = append(list, batch{n, payload}) })
		mu.Unlock()
		for _, b := range list {
			answer(b.number, b.payload)
		}
		answer(^uint64(0), nil)
	}
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// close ends all connections.
func (p *publisher) close() {
	for _, s := range p.servers {
		s.Close()
	}
	p.done.Wait()
}
