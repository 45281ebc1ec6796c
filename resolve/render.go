package resolve

import (
	"pointsman/misuse"
	"pointsman/templates"
)

// RenderHAProxy renders the complete set for HAProxy or, with attach, what
// attaches to one that runs. The SPOE configuration is installed as spoeConf.
func (r *Config) RenderHAProxy(spoeConf string, attach bool) ([]templates.File, []templates.Snippet, error) {
	o, err := r.HAProxy()
	if err != nil {
		return nil, nil, err
	}
	if err := templates.CheckSPOEConf(spoeConf); err != nil {
		return nil, nil, misuse.Of(err)
	}
	o.SPOEConf = spoeConf
	if attach {
		return templates.AttachHAProxy(o)
	}
	files, err := templates.RenderHAProxy(o)
	return files, nil, err
}

// RenderNginx renders the complete set for nginx or, with attach, what attaches
// to one that runs. The files are installed in dir.
func (r *Config) RenderNginx(dir string, attach bool) ([]templates.File, []templates.Snippet, error) {
	o, err := r.Nginx()
	if err != nil {
		return nil, nil, err
	}
	o.Dir = dir
	if attach {
		if err := templates.CheckNginxDir(dir); err != nil {
			return nil, nil, misuse.Of(err)
		}
		return templates.AttachNginx(o)
	}
	files, err := templates.RenderNginx(o)
	return files, nil, err
}
