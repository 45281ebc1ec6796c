package inject

import (
	"regexp"
	"strings"
)

// Nginx are the faults of a configuration that ByHand made.
var Nginx = []Fault{
	{"pm_own misspelt", []string{"pm-own"}, "requests without a decision ended as 502", func(conf string) string {
		return owned.ReplaceAllString(conf, "set $$pm_own ${1}x;")
	}},
	{"server snippet in the wrong server", []string{"wrong-server"}, "with 500 by itself", wrongServer},
}

var (
	owned    = regexp.MustCompile(`set \$pm_own ([\w-]+);`)
	upstream = regexp.MustCompile(`upstream\s+([\w-]+)\s*\{`)
	http     = regexp.MustCompile(`(?m)^http\s*\{\n(\s*map_hash_bucket_size \d+;\n)?`)
	serverAt = regexp.MustCompile(`server\s*\{`)
	included = regexp.MustCompile(`\n *include \S*/nginx-server\.conf;`)
)

// ByHand attaches to an nginx.conf by the lines that `render nginx --attach` prints,
// whose files lie in dir. It reports false for a configuration with no proxy_pass to
// an upstream in it.
func ByHand(conf, dir string) (string, bool) {
	for _, u := range upstream.FindAllStringSubmatch(conf, -1) {
		pass := "proxy_pass http://" + u[1] + ";"
		at := strings.Index(conf, pass)
		if at < 0 || http.FindString(conf) == "" {
			continue
		}
		servers := serverAt.FindAllStringIndex(conf[:at], -1)
		if len(servers) == 0 {
			continue
		}
		in := servers[len(servers)-1][1]
		conf = conf[:in] + "\n        include " + dir + "/nginx-server.conf;" + conf[in:]
		conf = strings.ReplaceAll(conf, pass, "set $pm_own "+u[1]+"; try_files /.pointsman @pm_ask;")
		return http.ReplaceAllStringFunc(conf, func(begin string) string { return begin + "    include " + dir + "/nginx-http.conf;\n" }), true
	}
	return conf, false
}

// wrongServer moves what is included in the server that asks to another one.
func wrongServer(conf string) string {
	line := included.FindString(conf)
	end := strings.LastIndexByte(conf, '}')
	if line == "" || end < 0 {
		return conf
	}
	conf = strings.Replace(conf, line, "", 1)
	end -= len(line)
	return conf[:end] + "    server {\n        listen 127.0.0.1:1;" + line + "\n    }\n" + conf[end:]
}
