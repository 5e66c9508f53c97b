package egress

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"sandyard/netguard"
)

const (
	maxName  = 253
	maxLabel = 63
)

// target is a destination that a sandbox asks for: a name or an address, and a port.
type target struct {
	name string // empty where ip is set
	ip   netip.Addr
	port uint16
}

func (t target) String() string {
	host := t.name
	if host == "" {
		host = t.ip.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(t.port)))
}

// parseTarget reads host:port as strictly as it can be: what one reader takes for a name and another for an address
// must not get through.
func parseTarget(text string) (target, error) {
	host, digits, err := net.SplitHostPort(text)
	if err != nil {
		return target{}, errors.New("is not a host and port")
	}
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || port == 0 {
		return target{}, errors.New("has no port between 1 and 65535")
	}
	t := target{port: uint16(port)}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return target{}, errors.New("is an address with a zone")
		}
		t.ip = netguard.Plain(ip)
		return t, nil
	}
	t.name, err = parseName(host)
	return t, err
}

// parseName returns a domain name in the one form that policies compare: lower case, without a dot at its end. A name
// whose last label is a number is an address to many programs, in one of the forms that nobody should use.
func parseName(name string) (string, error) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "" || len(name) > maxName {
		return "", errors.New("is not a domain name")
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if !isLabel(label) {
			return "", errors.New(
				"is not a domain name: labels consist of letters, digits and dashes; write other characters as xn--",
			)
		}
	}
	if isNumber(labels[len(labels)-1]) {
		return "", errors.New("is an address in an unusual form")
	}
	return name, nil
}

func isLabel(label string) bool {
	if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(label, func(r rune) bool {
		return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	})
}

func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
