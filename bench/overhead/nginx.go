package main

import (
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"pointsman/bench/stand"
	"pointsman/templates"
)

// serveNullNginx is the null agent for nginx: fasthttp reads the request and
// returns the replicas in turn.
func serveNullNginx() {
	l, err := net.Listen("unix", *listen)
	if err != nil {
		log.Fatal(err)
	}
	var names []string
	for i := range replicas {
		names = append(names, templates.NginxUpstream("llama", fmt.Sprintf("r%d", i+1)))
	}
	var next atomic.Uint64
	s := fasthttp.Server{
		MaxRequestBodySize: 64 << 20, NoDefaultServerHeader: true, NoDefaultDate: true, NoDefaultContentType: true,
		Handler: func(ctx *fasthttp.RequestCtx) {
			ctx.Response.Header.SetBytesV("X-Accel-Redirect", ctx.Request.Header.Peek("X-Pointsman-Target"))
			ctx.Response.Header.Set("X-Pointsman-Server", names[next.Add(1)%replicas])
		},
	}
	log.Fatal(s.Serve(l))
}

// addNginx starts an nginx that uses the agent at socket. Without a socket, it
// passes requests to the pool's upstream and sends no feed, with the same
// configuration otherwise.
func (b *bench) addNginx(name, socket, feed string, pool templates.Pool) {
	plain := socket == ""
	if plain {
		socket = "/nowhere"
	}
	front := freePort()
	dir := filepath.Join(b.folder, "nginx-"+strings.Fields(name)[0])
	check(os.Mkdir(dir, 0o700))
	files, err := templates.RenderNginx(templates.Nginx{
		Bind: front, AgentAddress: "unix://" + socket, FeedAddress: feed, Folder: dir, Pools: []templates.Pool{pool},
		BodyBuffer: 1 << 20, ProcessingTimeout: 100 * time.Millisecond,
	})
	check(err)
	text := files[0].Text
	if plain {
		var err error
		text, err = stand.NginxWithoutAgent(text, "llama")
		check(err)
	}
	conf := filepath.Join(dir, templates.NginxFile)
	check(os.WriteFile(conf, []byte(text), 0o600))
	command := strings.Fields(*nginx)
	global := "daemon off;"
	if os.Getuid() == 0 {
		global += " user root;" // only root may read the folder
	}
	b.start(command[0], append(command[1:], "-p", dir, "-c", conf, "-g", global)...)
	b.waitFor(name, front)
}
