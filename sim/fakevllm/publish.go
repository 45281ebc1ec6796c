package fakevllm

import (
	"context"
	"encoding/binary"
	"pointsman/sim"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
)

// publisher sends the events of a server's KV cache over ZeroMQ, and answers
// those who ask for past ones.
type publisher struct {
	o   Options
	log *KVEvents // guarded by the server's lock

	out    chan batch
	pub    zmq4.Socket // nil until open
	router zmq4.Socket // nil unless there is a replay socket
	stop   context.CancelFunc
	done   sync.WaitGroup
}

type batch struct {
	number  uint64
	payload []byte
}

func newPublisher(o Options) *publisher {
	form := o.EventForm
	form.BlockSize = o.BlockSize
	return &publisher{o: o, log: NewKVEvents(form), out: make(chan batch, 10_000)}
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

// flush hands on what happened in a step. What nobody takes in time is lost, as
// with any publisher. The caller holds the server's lock.
func (p *publisher) flush() {
	number, payload, ok := p.log.Batch(float64(time.Now().UnixMicro()) / 1e6)
	if !ok {
		return
	}
	if lost := p.o.LoseBatch; lost != nil && lost(number) {
		return
	}
	select {
	case p.out <- batch{number, payload}:
	default:
	}
}

// open begins to publish. mu guards the log.
func (p *publisher) open(mu *sync.Mutex) error {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.pub = zmq4.NewPub(ctx)
	if err := p.pub.Listen(p.o.Events); err != nil {
		stop()
		return err
	}
	p.done.Go(func() { p.publish(ctx) })
	if p.o.Replay == "" {
		return nil
	}
	p.router = zmq4.NewRouter(ctx)
	if err := p.router.Listen(p.o.Replay); err != nil {
		p.close()
		return err
	}
	p.done.Go(func() { p.replay(mu) })
	return nil
}

func (p *publisher) publish(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-p.out:
			_ = p.pub.SendMulti(zmq4.NewMsgFrom([]byte("kv-events"), number(b.number), b.payload))
		}
	}
}

// replay answers until the socket is closed.
func (p *publisher) replay(mu *sync.Mutex) {
	for {
		msg, err := p.router.Recv()
		if err != nil {
			return
		}
		f := msg.Frames // identity, nothing, number
		if len(f) != 3 || len(f[2]) != 8 {
			continue
		}
		answer := func(n uint64, payload []byte) {
			frames := [][]byte{f[0], {}}
			if p.o.EventForm.Maps { // as versions do that have maps
				frames = append(frames, []byte("kv-events"))
			}
			_ = p.router.SendMulti(zmq4.NewMsgFrom(append(frames, number(n), payload)...))
		}
		if lost := p.o.LoseReplay; lost != nil && lost() {
			_ = p.router.SendMulti(zmq4.NewMsgFrom(f[0], nil, []byte("lost")))
			continue
		}
		var list []batch
		mu.Lock()
		p.log.Replay(binary.BigEndian.Uint64(f[2]), func(n uint64, payload []byte) { list = append(list, batch{n, payload}) })
		mu.Unlock()
		for _, b := range list {
			answer(b.number, b.payload)
		}
		answer(^uint64(0), nil)
	}
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func (p *publisher) close() {
	if p.stop == nil {
		return
	}
	p.stop()
	p.pub.Close()
	if p.router != nil {
		p.router.Close()
	}
	p.done.Wait()
}
