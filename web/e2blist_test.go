package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestE2BListOrder: pages follow the time of the start in both directions, and hold what the filters let through.
func TestE2BListOrder(t *testing.T) {
	t.Parallel()
	r, _ := newE2B(t)
	ctx := context.Background()
	conn := must(pgx.Connect(ctx, r.dsn))(t)
	defer conn.Close(ctx)
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var ids []string
	for i, minute := range []int{3, 1, 2, 2, 4} { // not as they were made, and two at once
		template := []string{"base", "node"}[i%2]
		made := r.call("POST", "/v2/sandboxes", map[string]any{"templateID": template, "metadata": map[string]string{"a key": "50% + a/b=&ä"}}).want(t, 201)
		ids = append(ids, made.text("sandboxID"))
		must(conn.Exec(ctx, "UPDATE sandboxes SET started_at = $1 WHERE id = $2", noon.Add(time.Duration(minute)*time.Minute), ids[i]))(t)
	}
	old, young := slices.Sorted(slices.Values(ids[2:4]))[0], slices.Sorted(slices.Values(ids[2:4]))[1]
	oldest := []string{ids[1], old, young, ids[0], ids[4]}
	newest := slices.Clone(oldest)
	slices.Reverse(newest)

	r.listsAll("order=asc", oldest...)
	r.listsAll("order=desc", newest...)
	r.listsAll("", newest...)
	r.listsAll("template=base&order=asc", ids[2], ids[0], ids[4])
	r.listsAll("template=python", ids[4], ids[0], ids[2])
	r.listsAll("template=node&order=asc", ids[1], ids[3])
	r.listsAll("template=nothing")
	r.listsAll("startedAfter="+url.QueryEscape(noon.Add(2*time.Minute).Format(time.RFC3339Nano)), newest[:4]...)
	r.listsAll("order=asc&startedAfter="+url.QueryEscape(noon.Add(121*time.Second).Format(time.RFC3339Nano)), ids[0], ids[4])

	// The clients escape metadata twice before it becomes a parameter; who follows the document to the letter, once.
	escaped := func(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }
	twice := url.Values{escaped("a key"): {escaped("50% + a/b=&ä")}}.Encode()
	for _, query := range []string{escaped("a key") + "=" + escaped("50% + a/b=&ä"), twice} {
		r.listsAll("metadata="+url.QueryEscape(query), newest...)
	}
	r.listsAll("metadata=" + url.QueryEscape("a+key=other"))

	r.call("POST", "/sandboxes/"+ids[0]+"/pause", nil).want(t, 204)
	for query, want := range map[string]string{"": "4", "state=running": "4", "state=paused": "", "state=paused,running&template=node": "2"} {
		if n := r.call("GET", "/v2/sandboxes?limit=1&"+query, nil).want(t, 200).header.Get("X-Total-Running"); n != want {
			t.Errorf("%q: %s are running, want %s", query, n, want)
		}
	}
	if a := r.call("GET", "/sandboxes", nil).want(t, 200); a.header.Get("X-Total-Running") != "" || strings.Count(a.raw, "sandboxID") != 4 {
		t.Errorf("the list without pages: %v %s", a.header, a.raw)
	}
}

// listsAll checks what a query lists, page by page and at once.
func (r *rig) listsAll(query string, want ...string) {
	r.t.Helper()
	for _, limit := range []int{1, 2, 100} {
		var got []string
		token := ""
		for {
			a := r.call("GET", fmt.Sprintf("/v2/sandboxes?limit=%d&nextToken=%s&%s", limit, token, query), nil).want(r.t, 200)
			var page []struct{ SandboxID string }
			check(r.t, json.Unmarshal([]byte(a.raw), &page))
			for _, b := range page {
				got = append(got, b.SandboxID)
			}
			if token = a.header.Get("X-Next-Token"); token == "" {
				break
			}
			if len(page) != limit {
				r.t.Fatalf("%q: a page of %d that is not the last has %d", query, limit, len(page))
			}
		}
		if !slices.Equal(got, want) {
			r.t.Errorf("%q in pages of %d lists %v, want %v", query, limit, got, want)
		}
	}
}

// TestE2BLogs: the ends of jobs, from one moment on or back from it.
func TestE2BLogs(t *testing.T) {
	t.Parallel()
	r, _ := newE2B(t)
	ctx := context.Background()
	conn := must(pgx.Connect(ctx, r.dsn))(t)
	defer conn.Close(ctx)
	id := r.call("POST", "/v2/sandboxes", map[string]any{"templateID": "base"}).want(t, 201).text("sandboxID")
	r.call("POST", "/v1/sandboxes/"+id+"/files/read?wait=60s", map[string]any{"path": "none"}).want(t, 200)
	r.call("POST", "/sandboxes/"+id+"/pause", nil).want(t, 204)
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i, kind := range []string{"create", "read", "pause"} {
		at := noon.Add(time.Duration(i)*time.Second + 300*time.Microsecond) // times finer than a cursor
		must(conn.Exec(ctx, "UPDATE jobs SET finished_at = $1 WHERE sandbox_id = $2 AND kind = $3", at, id, kind))(t)
	}
	at := func(i int) string { return strconv.FormatInt(noon.Add(time.Duration(i)*time.Second).UnixMilli(), 10) }
	create, read, pause := "info create succeeded", "error read failed", "info pause succeeded"
	for query, want := range map[string][]string{
		"":                                     {create, read, pause},
		"direction=forward&cursor=" + at(1):    {read, pause},
		"direction=backward":                   {pause, read, create},
		"direction=backward&cursor=" + at(1):   {read, create},
		"direction=backward&limit=1":           {pause},
		"limit=2":                              {create, read},
		"limit=0":                              {},
		"level=info":                           {create, read, pause},
		"level=warn":                           {read},
		"level=error&direction=backward":       {read},
		"search=succeeded":                     {create, pause},
		"search=Succeeded":                     {},
		"search=" + url.QueryEscape("e succ"):  {create, pause},
		"search=" + url.QueryEscape("%"):       {},
		"search=pause&cursor=" + at(1):         {pause},
		"search=pause&level=error":             {},
		"cursor=" + at(9):                      {},
		"direction=backward&cursor=" + at(-10): {},
	} {
		if got := r.logged("/v2/sandboxes/"+id+"/logs?"+query, "logs"); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
	for query, want := range map[string][]string{"": {create, read, pause}, "start=" + at(2): {pause}, "limit=1": {create}, "limit=5000": {create, read, pause}} {
		if got := r.logged("/sandboxes/"+id+"/logs?"+query, "logEntries"); !slices.Equal(got, want) {
			t.Errorf("v1 %q: %q, want %q", query, got, want)
		}
	}
	for _, query := range []string{"cursor=-1", "cursor=x", "limit=1001", "limit=-1", "direction=up", "level=loud", "search=" + strings.Repeat("x", 257)} {
		name, _, _ := strings.Cut(query, "=")
		r.call("GET", "/v2/sandboxes/"+id+"/logs?"+query, nil).refused(t, 400, name)
	}
}

// logged lists a log's entries by level and message.
func (r *rig) logged(path, field string) []string {
	r.t.Helper()
	list, _ := r.call("GET", path, nil).want(r.t, 200).get(field).([]any)
	lines := []string{}
	for _, entry := range list {
		e, _ := entry.(map[string]any)
		lines = append(lines, fmt.Sprintf("%s %s", e["level"], e["message"]))
	}
	return lines
}

// TestE2BMetrics: a running sandbox is asked what it uses.
func TestE2BMetrics(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t, hasty(0))
	path := "/sandboxes/" + r.box + "/metrics"
	samples := func(query string) []map[string]any {
		var list []map[string]any
		check(t, json.Unmarshal([]byte(r.call("GET", path+query, nil).want(t, 200).raw), &list))
		return list
	}
	now := time.Now().Unix()
	for query, want := range map[string]int{
		"": 1, fmt.Sprintf("?start=%d", now-3600): 1, fmt.Sprintf("?start=%d&end=%d", now-3600, now+3600): 1,
		fmt.Sprintf("?start=%d", now+3600): 0, fmt.Sprintf("?end=%d", now-3600): 0,
	} {
		if got := samples(query); len(got) != want {
			t.Errorf("%q: %v, want %d", query, got, want)
		}
	}
	m := samples("")[0]
	for field, want := range map[string]float64{
		"cpuCount": 1, "cpuUsedPct": 12.5, "memTotal": 512 << 20, "memUsed": 64 << 20, "memCache": 8 << 20, "diskTotal": 256 << 20, "diskUsed": 1 << 20,
	} {
		if m[field] != want {
			t.Errorf("%s is %v, want %v", field, m[field], want)
		}
	}
	unix, _ := m["timestampUnix"].(float64)
	text, _ := m["timestamp"].(string)
	if at, err := time.Parse(time.RFC3339Nano, text); err != nil || at.Unix() != int64(unix) || at.Unix() < now-60 {
		t.Errorf("taken at %v, %v", m["timestamp"], m["timestampUnix"])
	}
	for _, query := range []string{"start=x", "end=-1", "start=9&end=8"} {
		name, _, _ := strings.Cut(query, "=")
		r.call("GET", path+"?"+query, nil).refused(t, 400, name)
	}

	paused := r.running()
	r.call("POST", "/sandboxes/"+paused+"/pause", nil).want(t, 204)
	if a := r.call("GET", "/sandboxes/"+paused+"/metrics", nil).want(t, 200); a.raw != "[]" {
		t.Errorf("a paused sandbox: %s", a.raw)
	}
	other := r.running()
	all := r.call("GET", "/sandboxes/metrics?sandbox_ids="+strings.Join([]string{r.box, other, paused, "sbnone", other}, ","), nil).want(t, 200)
	if found, _ := all.get("sandboxes").(map[string]any); len(found) != 2 || all.get("sandboxes."+r.box+".memUsed") != float64(64<<20) || all.get("sandboxes."+other) == nil {
		t.Errorf("of several: %s", all.raw)
	}
	for _, ids := range []string{"", "sandbox_ids=", "sandbox_ids=" + strings.Join(numbered(101), ",")} {
		r.call("GET", "/sandboxes/metrics?"+ids, nil).refused(t, 400, "sandbox_ids")
	}
	r.stopGateway()
	if a := r.call("GET", path, nil); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("without a gateway: %d %v %s", a.status, a.header, a.raw)
	}
}

// TestE2BMetricsOfAnHour: the samples that were taken of an interval come before the one that is taken now.
func TestE2BMetricsOfAnHour(t *testing.T) {
	t.Parallel()
	r := newInsideRig(t, hasty(0))
	ctx := context.Background()
	conn := must(pgx.Connect(ctx, r.dsn))(t)
	defer conn.Close(ctx)
	now := time.Now().Truncate(time.Second)
	for minutes := range 3 {
		must(conn.Exec(ctx, "INSERT INTO usage_samples VALUES ($1, $2, 12.5, 1000, 200, $3)", r.box, now.Add(-time.Duration(10*(minutes+1))*time.Minute), 30<<(20*minutes)))(t)
	}
	path := "/sandboxes/" + r.box + "/metrics"
	used := func(query string) string { // of the disk
		var list []struct{ DiskUsed int64 }
		check(t, json.Unmarshal([]byte(r.call("GET", path+query, nil).want(t, 200).raw), &list))
		return fmt.Sprint(list)
	}
	at := func(minutes int) int64 { return now.Add(-time.Duration(minutes) * time.Minute).Unix() }
	for query, want := range map[string]string{
		"": "[{268435456} {31457280} {30} {1048576}]", fmt.Sprintf("?start=%d", at(25)): "[{31457280} {30} {1048576}]",
		fmt.Sprintf("?start=%d&end=%d", at(25), at(15)): "[{31457280}]", fmt.Sprintf("?end=%d", at(15)): "[{268435456} {31457280}]",
		fmt.Sprintf("?start=%d", at(-60)): "[]", "?end=9223372036854775807": "[{268435456} {31457280} {30} {1048576}]",
		"?start=9223372036854775807": "[]", "?end=0": "[]",
	} {
		if got := used(query); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
	var first []map[string]any
	check(t, json.Unmarshal([]byte(r.call("GET", path, nil).want(t, 200).raw), &first))
	for field, want := range map[string]float64{
		"cpuCount": 1, "cpuUsedPct": 12.5, "memTotal": 512 << 20, "memUsed": 1000, "memCache": 200, "diskTotal": 256 << 20,
		"timestampUnix": float64(at(30)),
	} {
		if first[0][field] != want {
			t.Errorf("%s is %v, want %v", field, first[0][field], want)
		}
	}
	r.call("POST", "/sandboxes/"+r.box+"/pause", nil).want(t, 204)
	if got := used(""); got != "[{268435456} {31457280} {30}]" {
		t.Errorf("of a paused sandbox: %s", got)
	}
	r.call("POST", "/v2/sandboxes/"+r.box+"/connect", nil).want(t, 201)
	r.stopGateway()
	if got := used(""); got != "[{268435456} {31457280} {30}]" {
		t.Errorf("without a gateway: %s", got)
	}
}

func numbered(n int) []string {
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprintf("sb%d", i))
	}
	return ids
}
