package cluster

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"pointsman/cluster/wire"
)

// Bounds of a secret, in bytes.
const (
	leastSecret = 16
	mostSecret  = 64 << 10
)

// ReadSecret reads the secret of the cluster of that name.
func ReadSecret(cluster, file string) (s wire.Secret, err error) {
	f, err := os.Open(file)
	if err != nil {
		return s, fmt.Errorf("cluster.secret_file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return s, fmt.Errorf("cluster.secret_file: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o007 != 0 {
		return s, fmt.Errorf("cluster.secret_file: %s can be read by everyone; want mode 0640 or 0600", file)
	}
	text, err := io.ReadAll(io.LimitReader(f, mostSecret))
	if err != nil {
		return s, fmt.Errorf("cluster.secret_file: %w", err)
	}
	text = bytes.TrimSpace(text)
	if len(text) < leastSecret {
		return s, fmt.Errorf("cluster.secret_file: %s holds %d bytes; want at least %d, such as from openssl rand -hex 32", file, len(text), leastSecret)
	}
	return wire.NewSecret(cluster, text), nil
}
