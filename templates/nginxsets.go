package templates

import (
	"fmt"
	"strings"
)

// NginxAskFile is included in a user's location in the place of its proxy_pass.
const NginxAskFile = "nginx-ask.conf"

// NginxSet is the named locations that serve one location of a user's. Lines are
// whole directives.
type NginxSet struct {
	Number   int    // ends the names of its locations; 0 where there is only one set
	Place    string // of the user's location, for a comment
	Pass     string // what the user's proxy_pass named, without a path: http://vllm
	Host     string // the Host header, unless Serve has one
	Pool     string // the pool of its requests, which may be a variable; empty: by the model
	TLSName  string // the name in the replicas' certificates; empty: not given
	Ask      []string
	Serve    []string // for the locations that lead to a replica
	Fallback []string // for the one that serves without a decision
	Guards   []string // which lift what the server would check a second time
	Logs     []string // access logs beside the feed
	// ErrorLogs are the error logs beside ours.
	ErrorLogs []string
}

// Suffix ends the names of the set's locations.
func (s *NginxSet) Suffix() string {
	if s.Number == 0 {
		return ""
	}
	return fmt.Sprint("_", s.Number)
}

// Scheme is that of the user's proxy_pass.
func (s *NginxSet) Scheme() string {
	scheme, _, _ := strings.Cut(s.Pass, ":")
	return scheme
}

// Has reports whether a line of Serve begins with these words.
func (s *NginxSet) Has(words string) bool {
	for _, l := range s.Serve {
		if strings.HasPrefix(strings.ToLower(strings.Join(strings.Fields(l), " "))+" ", words+" ") {
			return true
		}
	}
	return false
}

// NginxServer is one server of a user's: the file to include there, and the sets
// that it holds.
type NginxServer struct {
	File string
	Sets []NginxSet
}

// NginxAskSnippet is what is included in one location: the file and the set it leads to.
type NginxAskSnippet struct {
	File string
	Set  NginxSet
}

// AttachNginxSets renders what an existing nginx includes: NginxHTTPFile at http
// level, a file in each server, and one in each location. The error lists
// everything that is wrong with o.
func AttachNginxSets(o Nginx, servers []NginxServer, asks []NginxAskSnippet) ([]File, error) {
	v, err := o.view(false)
	if err != nil {
		return nil, err
	}
	for _, a := range asks {
		if a.Set.Number != 0 {
			v.Set = "$pm_set"
		}
	}
	text, err := execute("nginx-sets-http", v)
	if err != nil {
		return nil, err
	}
	files := []File{{NginxHTTPFile, text}}
	for _, s := range servers {
		text, err := execute("nginx-sets-server", v)
		if err != nil {
			return nil, err
		}
		for i := range s.Sets {
			set, err := execute("nginx-sets-set", nginxSetView{v, &s.Sets[i]})
			if err != nil {
				return nil, err
			}
			text += "\n" + set
		}
		files = append(files, File{s.File, text})
	}
	for _, a := range asks {
		text, err := execute("nginx-sets-ask", nginxSetView{v, &a.Set})
		if err != nil {
			return nil, err
		}
		files = append(files, File{a.File, text})
	}
	return files, nil
}

// nginxSetView is the view together with one set.
type nginxSetView struct {
	*nginxView
	*NginxSet
}
