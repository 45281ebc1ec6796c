package zmtp

import (
	"bytes"
	"sync"
)

// maxQueued bounds the messages that wait for one subscriber.
const maxQueued = 10_000

// Publisher sends each message to every peer that has subscribed to it, as a PUB socket
// does. It never waits for a peer: messages that a peer does not read in time are lost for
// it. It is safe for concurrent use.
type Publisher struct {
	mu    sync.Mutex
	peers map[*subscriber]struct{}
}

// subscriber is a peer of a Publisher.
type subscriber struct {
	queue  chan []byte // messages as they are on the wire
	topics [][]byte    // prefixes; guarded by the publisher's lock
}

// Handle serves one peer until its connection ends. It is the Handle of a Server,
// and can be called with a connection that was dialled.
func (p *Publisher) Handle(c *Conn) {
	s := &subscriber{queue: make(chan []byte, maxQueued)}
	p.mu.Lock()
	if p.peers == nil {
		p.peers = map[*subscriber]struct{}{}
	}
	p.peers[s] = struct{}{}
	p.mu.Unlock()
	var writer sync.WaitGroup
	writer.Go(func() {
		defer c.Close() // ends the loop below
		for message := range s.queue {
			c.mu.Lock()
			err := c.write(message)
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	for {
		frames, err := c.Receive()
		if err != nil || !p.subscribe(s, frames) {
			break
		}
	}
	p.mu.Lock()
	delete(p.peers, s)
	close(s.queue)
	p.mu.Unlock()
	c.Close()
	writer.Wait()
}

// maxTopics bounds the subscriptions of one peer.
const maxTopics = 1000

// subscribe handles a subscription, or the end of one. It reports whether the message
// is understood.
func (p *Publisher) subscribe(s *subscriber, frames [][]byte) bool {
	if len(frames) != 1 || len(frames[0]) == 0 || frames[0][0] > 1 {
		return false
	}
	topic := frames[0][1:]
	p.mu.Lock()
	defer p.mu.Unlock()
	if frames[0][0] == 1 {
		s.topics = append(s.topics, bytes.Clone(topic))
		return len(s.topics) <= maxTopics
	}
	for i, known := range s.topics {
		if bytes.Equal(known, topic) {
			s.topics = append(s.topics[:i], s.topics[i+1:]...)
			break
		}
	}
	return true
}

// Send sends a message, whose first frame is the topic, to those who have
// subscribed to it. It does not keep the frames.
func (p *Publisher) Send(frames ...[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var message []byte
	for s := range p.peers {
		if !s.wants(frames[0]) {
			continue
		}
		if message == nil {
			message = appendMessage(nil, frames)
		}
		select {
		case s.queue <- message:
		default: // the peer is too slow
		}
	}
}

// wants reports whether the subscriber has asked for a topic.
func (s *subscriber) wants(topic []byte) bool {
	for _, prefix := range s.topics {
		if bytes.HasPrefix(topic, prefix) {
			return true
		}
	}
	return false
}
