package tracing

import (
	"fmt"
	"net/http"
	"time"
)

// Probe posts a request without a span to the collector, and says why it is not taken.
func Probe(endpoint string, limit time.Duration) error {
	target, err := Target(endpoint)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: limit}
	defer client.CloseIdleConnections()
	resp, err := client.Post(target, "application/x-protobuf", http.NoBody)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", resp.Status)
	}
	return nil
}
