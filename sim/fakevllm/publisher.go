package fakevllm

import (
	"encoding/binary"
	"net"
	"sync"
	"time"

	"pointsman/engine/zmtp"
	"pointsman/sim"
)

// publisher publishes the events of an engine's KV cache over ZeroMQ, and
// replays past ones.
type publisher struct {
	o   Options
	mu  *sync.Mutex // the engine's; guards log
	log *KVEvents

	pub     zmtp.Publisher
	servers []*zmtp.Server // none until open
	addrs   []net.Addr     // of the servers
	done    sync.WaitGroup
}

// peerTimeout bounds the greeting of a peer and each write to it.
const peerTimeout = 10 * time.Second

func newPublisher(o Options, mu *sync.Mutex) *publisher {
	form := o.EventForm
	form.BlockSize = o.BlockSize
	return &publisher{o: o, mu: mu, log: NewKVEvents(form)}
}

// blockStored logs block i of a job. The caller holds mu.
func (p *publisher) blockStored(j *sim.Job, i int) {
	q := j.Owner.(*sequence)
	parent := uint64(0)
	if i > 0 {
		parent = j.Blocks[i-1]
	}
	n := p.o.BlockSize
	p.log.Stored(j.Blocks[i], parent, i == 0, q.tokens[i*n:(i+1)*n], q.lora, q.salt)
}

// topic is the topic of all events.
var topic = []byte("kv-events")

// flush publishes the events of a step. A subscriber that does not keep up loses
// some, as with any publisher. The caller holds mu.
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

// open opens the sockets.
func (p *publisher) open() error {
	if err := p.listen(p.o.Events, "PUB", p.pub.Handle); err != nil {
		return err
	}
	if p.o.Replay == "" {
		return nil
	}
	if err := p.listen(p.o.Replay, "ROUTER", p.replay); err != nil {
		p.close()
		return err
	}
	return nil
}

// listen serves the peers that connect to an endpoint such as tcp://*:5557.
func (p *publisher) listen(endpoint, kind string, handle func(*zmtp.Conn)) error {
	l, err := net.Listen("tcp", hostPort(endpoint))
	if err != nil {
		return err
	}
	s := &zmtp.Server{Kind: kind, Timeout: peerTimeout, Handle: handle}
	p.servers, p.addrs = append(p.servers, s), append(p.addrs, l.Addr())
	p.done.Go(func() { _ = s.Serve(l) })
	return nil
}

// replay answers one peer until its connection ends.
func (p *publisher) replay(c *zmtp.Conn) {
	for {
		f, err := c.Receive() // an empty frame and a number
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
			if p.o.EventForm.Maps { // as those versions do that encode maps
				frames = append(frames, topic)
			}
			_ = c.Send(append(frames, number(n), payload)...)
		}
		type batch struct {
			number  uint64
			payload []byte
		}
		var list []batch
		p.mu.Lock()
		p.log.Replay(from, func(n uint64, payload []byte) { list = append(list, batch{n, payload}) })
		p.mu.Unlock()
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
