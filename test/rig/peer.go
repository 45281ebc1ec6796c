package rig

import (
	"bufio"
	"bytes"
	endian "encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"pointsman/templates"
)

// Peer is one connection of a proxy to the agent, and one to its feed, without the
// proxy: it asks as fast as the agent answers. It is for one goroutine.
type Peer interface {
	// Served asks n questions, as many at once as the proxy does on one connection, and
	// reports to the feed that each was served by the replica that was named. ask is the
	// i-th question: its body, and further lines of its header.
	Served(n int, ask func(i int) (body []byte, header string)) error
	Close()
}

// ids are those of a peer's requests, in the form of a proxy.
type ids struct {
	peer, seq int
}

func (n *ids) next() string {
	n.seq++
	return fmt.Sprintf("%016x%016x", n.peer, n.seq)
}

// spopPeer is HAProxy's.
type spopPeer struct {
	ids
	spop
	feed net.Conn
	in   *bufio.Reader
	out  []byte
	asks []string
}

// Peer implements Proxy.
func (h *HAProxy) Peer(number int) (Peer, error) {
	c, err := dialUnix(h.Spoe)
	if err != nil {
		return nil, err
	}
	p := &spopPeer{ids: ids{peer: number}, spop: spop{c}, in: bufio.NewReaderSize(c, 32<<10)}
	if err := p.hello(); err != nil {
		c.Close()
		return nil, err
	}
	if p.feed, err = dial("tcp", h.Feed); err != nil {
		c.Close()
		return nil, err
	}
	return p, nil
}

// named is how an answer names the server: a string, after the variable's name.
var named = []byte("\x06server\x08")

func (p *spopPeer) Served(n int, ask func(i int) (body []byte, header string)) error {
	p.out, p.asks = p.out[:0], p.asks[:0]
	for i := range n {
		id := p.next()
		p.asks = append(p.asks, id)
		at := len(p.out)
		p.out = append(p.out, 0, 0, 0, 0, notify, 0, 0, 0, 1, byte(i), 1)
		body, header := ask(i)
		p.out = append(text(p.out, "pm-route"), 4)
		p.out = pair(pair(pair(pair(p.out, "rid", id), "path", ChatPath), "hdrs", header), "body", string(body))
		endian.BigEndian.PutUint32(p.out[at:], uint32(len(p.out)-at-4))
	}
	p.c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := p.c.Write(p.out); err != nil {
		return err
	}
	p.out = p.out[:0]
	for range n {
		if p.in.Buffered() == 0 { // what waits may wait for these
			if _, err := p.feed.Write(p.out); err != nil {
				return err
			}
			p.out = p.out[:0]
		}
		head, err := p.in.Peek(4)
		if err != nil {
			return err
		}
		frame, err := p.in.Peek(4 + int(endian.BigEndian.Uint32(head)))
		if err != nil {
			return err
		}
		_, server, ok := bytes.Cut(frame, named)
		if !ok || frame[4] != ack || int(frame[9]) >= n {
			return fmt.Errorf("answered %q", frame)
		}
		id, server := p.asks[frame[9]], server[1:1+int(server[0])]
		for _, event := range []string{"first", "close"} {
			line := fmt.Sprintf("PM1 ev=%s rid=%s pool=%s srv=%s st=200 ts=-- rc=0 dec=%[4]s fe=f me=POST pa=completions PM.", event, id, Pool, server)
			p.out = fmt.Appendf(p.out, "%d %s", len(line), line)
		}
		if _, err := p.in.Discard(len(frame)); err != nil {
			return err
		}
	}
	_, err := p.feed.Write(p.out)
	return err
}

func (p *spopPeer) Close() {
	p.c.Close()
	p.feed.Close()
}

// nginxPeer is nginx's.
type nginxPeer struct {
	ids
	socket  string
	c, feed net.Conn
	in      *bufio.Reader
	out     []byte
}

// Peer implements Proxy.
func (n *Nginx) Peer(number int) (Peer, error) {
	c, err := dialUnix(n.Socket)
	if err != nil {
		return nil, err
	}
	feed, err := dial("udp", n.Feed)
	if err != nil {
		c.Close()
		return nil, err
	}
	return &nginxPeer{ids: ids{peer: number}, socket: n.Socket, c: c, feed: feed, in: bufio.NewReader(c)}, nil
}

func (p *nginxPeer) Served(n int, ask func(i int) (body []byte, header string)) error {
	for i := range n {
		if err := p.served(ask(i)); err != nil {
			return err
		}
	}
	return nil
}

func (p *nginxPeer) served(body []byte, header string) error {
	id := p.next()
	p.c.SetDeadline(time.Now().Add(20 * time.Second))
	p.out = fmt.Appendf(p.out[:0], "POST %s HTTP/1.1\r\nHost: pointsman\r\nX-Pointsman-Id: %s\r\nX-Pointsman-Target: @pm_target\r\n%sContent-Length: %d\r\n\r\n%s", ChatPath, id, header, len(body), body)
	if _, err := p.c.Write(p.out); err != nil {
		return err
	}
	word, length, closes := "", 0, false
	for {
		line, err := p.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		key, value, ok := strings.Cut(strings.TrimRight(string(line), "\r\n"), ": ")
		switch {
		case key == "":
			if _, err := p.in.Discard(length); err != nil {
				return err
			}
			if word == "" {
				return errors.New("no server is named")
			}
			if closes { // it was held
				p.c.Close()
				if p.c, err = dialUnix(p.socket); err != nil {
					return err
				}
				p.in.Reset(p.c)
			}
			p.out = fmt.Appendf(p.out[:0], `<190>Nov 20 16:48:19 %s: {"id":"%s","srv":"%s","addr":"unix:x : %[3]s","ust":"200 : 200","hdr":"0.001 : 0.001",`+
				`"uconn":"0.000 : 0.000","ulen":"0 : 100","clen":"","urt":"0.001 : 0.001","rt":"0.002","status":"200","bytes":"300","done":"OK","pid":"1","conn":"1"}`,
				templates.NginxTag, id, word)
			_, err := p.feed.Write(p.out)
			return err
		case ok && strings.EqualFold(key, "x-pointsman-server"):
			word = value
		case ok && strings.EqualFold(key, "connection"):
			closes = strings.EqualFold(value, "close")
		case ok && strings.EqualFold(key, "content-length"):
			if length, err = strconv.Atoi(value); err != nil {
				return err
			}
		}
	}
}

func (p *nginxPeer) Close() {
	p.c.Close()
	p.feed.Close()
}
