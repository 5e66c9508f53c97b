package main

import (
	"net"
	"testing"

	"sandyard/app"
)

// TestDoorsStayWhereTheyWere: what was not told is at the next start where it was at the last, also where the usual ports are
// taken; what was told is there, or nowhere.
func TestDoorsStayWhereTheyWere(t *testing.T) {
	for _, usual := range []string{usualAPI, usualEdge} {
		if l, err := net.Listen("tcp", usual); err == nil { // else somebody else has taken it
			defer l.Close()
		}
	}
	dir := t.TempDir()
	open := func(api, edge string) (string, string, error) {
		d, err := openDoors(dir, api, edge)
		if err != nil {
			return "", "", err
		}
		defer closeDoors(d)
		return d.API.Addr().String(), d.Edge.Addr().String(), nil
	}
	api, edge, err := open("", "")
	if err != nil {
		t.Fatal(err)
	}
	if again, edgeAgain, err := open("", ""); again != api || edgeAgain != edge || err != nil {
		t.Errorf("first at %s and %s, then at %s and %s, %v", api, edge, again, edgeAgain, err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	told := free.Addr().String()
	if _, _, err := open(told, ""); err == nil {
		t.Error("another address was taken than the one that was told")
	}
	if _, _, err := open("", told); err == nil {
		t.Error("another edge was taken than the one that was told")
	}
	_ = free.Close()
	if got, _, err := open(told, "127.0.0.1:0"); got != told || err != nil {
		t.Errorf("told %s, at %s, %v", told, got, err)
	}
	if again, edgeAgain, err := open("", ""); again != api || edgeAgain != edge || err != nil {
		t.Errorf("after a start that was told: at %s and %s, %v", again, edgeAgain, err)
	}
}

func closeDoors(d app.Doors) {
	_ = d.API.Close()
	_ = d.Edge.Close()
}
