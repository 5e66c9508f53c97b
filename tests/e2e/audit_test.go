package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"sandyard/dev/testenv"
)

// TestAuditAndSecurityEvents: an upload, a program that the kernel kills and a connection that the policy refuses are told of.
func TestAuditAndSecurityEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	box := r.created(object{"memory_mb": 96, "disk_mb": 16, "egress": object{"allow": []string{"files.example"}}})
	up := r.transfer(http.MethodPut, r.url()+"/v1/sandboxes/"+box.ID+"/files/raw?path=a", strings.NewReader("hello"), 5) //nolint:bodyclose // closed at the end of the test
	if up.StatusCode != http.StatusOK {
		t.Fatalf("upload: %s", up.Status)
	}
	list := func(path string) string { return string(r.call("GET", path, nil).want(t, 200).raw) }
	testenv.Eventually(t, "the upload's entry with its outcome", func() bool {
		all := list("/v1/audit?target=" + box.ID + "&outcome=done")
		return strings.Contains(all, `"PUT /v1/sandboxes/{id}/files/raw"`)
	})
	killed := r.exec(box.ID, `python3 -c "x = bytearray(400 << 20)"`)
	if killed.State != "succeeded" || killed.Result.Signal != "SIGKILL" {
		t.Errorf("the program: %s %v", killed.State, killed.Result)
	}
	refused := r.exec(box.ID, `python3 -c "import urllib.request; urllib.request.urlopen('http://other.example/', timeout=10)"`)
	if !strings.Contains(refused.Stderr, "403") {
		t.Errorf("the connection: %s", refused.Stderr)
	}
	for _, kind := range []string{"out_of_memory", "egress_denied"} {
		testenv.Eventually(t, kind, func() bool { return strings.Contains(list("/v1/security-events?kind="+kind), box.ID) })
	}
	r.clean()
}
