package config

import (
	"strings"
	"testing"
)

func TestCheckEnvironment(t *testing.T) {
	good := []string{"PATH=/bin", "POINTSMAN_SESSION_HEADER=x", "POINTSMAN_SOAK=1", "POINTSMAN=x",
		"POINTSMAN_SERVICE_HOST=10.0.0.1", "POINTSMAN_PORT=tcp://10.0.0.1:9900", "POINTSMAN_SERVICE_PORT_ADMIN=9902",
		"POINTSMAN_PORT_9900_TCP_ADDR=10.0.0.1", "POINTSMAN_ADMIN_SERVICE_PORT=9902", "POINTSMAN_ADMIN_PORT_9902_TCP=x"}
	if err := CheckEnvironment(good); err != nil {
		t.Error(err)
	}
	err := CheckEnvironment(append(good, "POINTSMAN_SESSION_HEADERS=x", "POINTSMAN_ADMIN=:1"))
	if err == nil {
		t.Fatal("unknown variables are accepted")
	}
	want := `environment: unknown variable "POINTSMAN_ADMIN"; want POINTSMAN_SESSION_HEADER; all else is set in the configuration file
environment: unknown variable "POINTSMAN_SESSION_HEADERS"; did you mean POINTSMAN_SESSION_HEADER? want POINTSMAN_SESSION_HEADER; all else is set in the configuration file`
	if err.Error() != want {
		t.Errorf("%s\nwant\n%s", err, want)
	}
	if strings.Contains(err.Error(), ":1\"") {
		t.Error("a value is shown")
	}
}
