package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"sandyard/app"
)

// Where a development installation listens that is not told.
const (
	usualAPI  = "127.0.0.1:8080"
	usualEdge = "127.0.0.1:8090"
)

// addresses are where the last start in a directory listened without being told. The next one listens there again, for URLs
// of it are in scripts and browsers.
type addresses struct {
	API  string `json:"api"`
	Edge string `json:"edge"`
}

// openDoors listens at the addresses that were given. A door without one is where it was at the last start, at its usual
// address, or at a free port that the next start takes again.
func openDoors(dir, api, edge string) (d app.Doors, err error) {
	path := filepath.Join(dir, "addresses")
	known := readAddresses(path)
	if d.API, err = openDoor(api, known.API, usualAPI); err != nil {
		return d, fmt.Errorf("listen for the API (LISTEN_ADDR, --addr): %w", err)
	}
	if api == "" {
		known.API = d.API.Addr().String()
	}
	others := []string{known.Edge, usualEdge}
	if api != "" {
		others = []string{edgeNear(api)}
	}
	if d.Edge, err = openDoor(edge, others...); err != nil {
		return d, errors.Join(fmt.Errorf("listen for the edge (EDGE_ADDR): %w", err), d.API.Close())
	}
	if edge == "" && api == "" {
		known.Edge = d.Edge.Addr().String()
	}
	if known == (addresses{}) {
		return d, nil
	}
	text, err := json.Marshal(known)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	return d, err
}

// readAddresses knows none where there is no such file, or one that nobody can read.
func readAddresses(path string) (known addresses) {
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &known) != nil {
		return addresses{}
	}
	return known
}

// openDoor listens at the address that was given, and nowhere else; without one, at the first that is free.
func openDoor(given string, others ...string) (net.Listener, error) {
	if given != "" {
		return net.Listen("tcp", given)
	}
	for _, addr := range others {
		if addr == "" {
			continue
		}
		if l, err := net.Listen("tcp", addr); err == nil {
			return l, nil
		}
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

// edgeNear is ten ports above the API.
func edgeNear(addr string) string {
	host, text, _ := net.SplitHostPort(addr) // of what was listened at already
	port, err := strconv.Atoi(text)
	if err != nil || port == 0 {
		return net.JoinHostPort(host, "0")
	}
	return net.JoinHostPort(host, strconv.Itoa(port+10))
}
