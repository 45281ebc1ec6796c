// Package adversary tests pointsman against those who mean harm, or do it: clients,
// tenants, engines, neighbours on the machine, proxies and clocks. Each test is one
// attack on a whole installation with a real proxy. SECURITY.md names the test that
// shows each thing that somebody cannot do. POINTSMAN_SOAK=1 makes the attacks long;
// they are bounded in count and time all the same, and keep to the loopback.
package adversary
