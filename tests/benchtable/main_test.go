package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sample = `goos: linux
pkg: sandyard/web
BenchmarkSubmit/64_clients/vs_asynq-2         	       1	        24.1 base-p50-ms	        99.7 base-p99-ms	      2000 base-p50-requests/s	         0 ns/op	        12.05 ours-p50-ms	        40.25 ours-p99-ms	      5000 ours-p50-requests/s
BenchmarkExec/vs_docker_exec 	       1	        48.0 base-p50-ms	        74 base-p99-ms	         4 ours-p50-ms	         8 ours-p99-ms
BenchmarkCrowd/vs_docker_run 	       1	       900 base-p50-ms	       1200 base-p50-ms_p95	       50.0 base-p50-%_done	       300 ours-p50-ms	       400 ours-p50-ms_p95	       100.0 ours-p50-%_done
BenchmarkOther-2 	     100	       12 ns/op
PASS
ok  	sandyard/web	2.6s
`

func TestComparisonsBecomeTableAndJSON(t *testing.T) {
	t.Parallel()
	var out, rest bytes.Buffer
	path := filepath.Join(t.TempDir(), "bench.json")
	if err := run(strings.NewReader(sample), &out, &rest, path); err != nil {
		t.Fatal(err)
	}
	want := `| what               | unit       | ours p50 |  p99 | baseline    |  p50 |  p99 | times better |
| ---                | ---        |     ---: | ---: | ---         | ---: | ---: |         ---: |
| submit, 64 clients | ms         |     12.1 | 40.2 | asynq       | 24.1 | 99.7 |         2.00 |
| submit, 64 clients | requests/s |     5000 |      | asynq       | 2000 |      |         2.50 |
| exec               | ms         |     4.00 | 8.00 | docker exec | 48.0 | 74.0 |         12.0 |
| crowd              | ms         |      300 |      | docker run  |  900 |      |         3.00 |
| crowd              | ms p95     |      400 |      | docker run  | 1200 |      |         3.00 |
| crowd              | % done     |      100 |      | docker run  | 50.0 |      |         2.00 |
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
	if !strings.Contains(rest.String(), "BenchmarkOther-2") || strings.Contains(rest.String(), "vs_") {
		t.Errorf("the rest is\n%s", &rest)
	}
	checkJSON(t, path)
}

func checkJSON(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{
		{"name": "submit, 64 clients", "unit": "ms", "p50": 12.05, "p99": 40.25, "baseline": "asynq", "baseline_p50": 24.1, "baseline_p99": 99.7, "ratio": 2.0},
		{"name": "submit, 64 clients", "unit": "requests/s", "p50": 5000.0, "p99": nil, "baseline": "asynq", "baseline_p50": 2000.0, "baseline_p99": nil, "ratio": 2.5},
		{"name": "exec", "unit": "ms", "p50": 4.0, "p99": 8.0, "baseline": "docker exec", "baseline_p50": 48.0, "baseline_p99": 74.0, "ratio": 12.0},
		{"name": "crowd", "unit": "ms", "p50": 300.0, "p99": nil, "baseline": "docker run", "baseline_p50": 900.0, "baseline_p99": nil, "ratio": 3.0},
		{"name": "crowd", "unit": "ms p95", "p50": 400.0, "p99": nil, "baseline": "docker run", "baseline_p50": 1200.0, "baseline_p99": nil, "ratio": 3.0},
		{"name": "crowd", "unit": "% done", "p50": 100.0, "p99": nil, "baseline": "docker run", "baseline_p50": 50.0, "baseline_p99": nil, "ratio": 2.0},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestAFailedRunIsAnError(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"failed":    sample + "FAIL\tsandyard/jobs\t2.0s\n",
		"empty":     "PASS\n",
		"malformed": "BenchmarkX/vs_y-2 \t 1\t 1.2.3 ours-p50-ms\t 1 base-p50-ms\n",
	} {
		path := filepath.Join(t.TempDir(), "bench.json")
		if err := run(strings.NewReader(in), &bytes.Buffer{}, &bytes.Buffer{}, path); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: results were written", name)
		}
	}
}
