package e2e_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// more is what stands in a shown answer for fields or values that are left out.
const more = "…"

// shownAnswer reads an answer as a document shows it: JSON in which … stands for what is left out, as a value of its own, as
// the last field or value, or in a string.
func shownAnswer(text string) (any, error) {
	var strict strings.Builder
	var open []rune // what is open, outside in
	quoted, escaped := false, false
	for _, c := range text {
		switch {
		case quoted:
			quoted = escaped || c != '"'
			escaped = !escaped && c == '\\'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			open = append(open, c)
		case (c == '}' || c == ']') && len(open) > 0:
			open = open[:len(open)-1]
		case string(c) == more && len(open) > 0 && open[len(open)-1] == '{' && !strings.HasSuffix(strings.TrimSpace(strict.String()), ":"):
			strict.WriteString(`"…": "…"`)
			continue
		case string(c) == more:
			strict.WriteString(`"…"`)
			continue
		}
		strict.WriteRune(c)
	}
	var shown any
	err := json.Unmarshal([]byte(strict.String()), &shown)
	return shown, err
}

// differences compares an answer that a document shows with a real one. Fields must be the same, unless … says that there are
// more, and values must be equal. Four things differ from run to run and have only the same form: an id (the same prefix), a
// time, a number that is measured (*_ms, or shown with a fraction), and what … replaces in a string.
func differences(at string, shown, real any) []string {
	if shown == more {
		return nil
	}
	switch shown := shown.(type) {
	case map[string]any:
		if real, ok := real.(map[string]any); ok {
			return fieldsDiffer(at, shown, real)
		}
	case []any:
		if real, ok := real.([]any); ok {
			return valuesDiffer(at, shown, real)
		}
	case string:
		if real, ok := real.(string); ok && alike(shown, real) {
			return nil
		}
	case float64:
		if _, ok := real.(float64); ok && (strings.HasSuffix(at, "_ms") || shown != float64(int64(shown))) || shown == real {
			return nil
		}
	default: // true, false and null
		if shown == real {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s is shown as %s, the server sends %s", at, jsonOf(shown), jsonOf(real))}
}

func fieldsDiffer(at string, shown, real map[string]any) (found []string) {
	_, open := shown[more]
	for name, value := range shown {
		if other, ok := real[name]; ok {
			found = append(found, differences(at+"."+name, value, other)...)
		} else if name != more {
			found = append(found, fmt.Sprintf("%s.%s is shown, the server does not send it", at, name))
		}
	}
	for name, value := range real {
		if _, ok := shown[name]; !ok && !open {
			found = append(found, fmt.Sprintf("%s.%s is not shown, the server sends %s", at, name, jsonOf(value)))
		}
	}
	slices.Sort(found)
	return found
}

func valuesDiffer(at string, shown, real []any) (found []string) {
	n := len(shown)
	open := n > 0 && shown[n-1] == more
	if open {
		n--
	}
	if len(real) < n || len(real) > n && !open {
		return []string{fmt.Sprintf("%s is shown with %d values, the server sends %d: %s", at, n, len(real), jsonOf(real))}
	}
	for i := range n {
		found = append(found, differences(fmt.Sprintf("%s[%d]", at, i), shown[i], real[i])...)
	}
	return found
}

// alike compares strings; of an id only the prefix counts.
func alike(shown, real string) bool {
	id := regexp.MustCompile(`\b([a-z]{1,4}_?)[0-9a-v]{26}\b`)
	shown, real = id.ReplaceAllString(shown, "${1}ID"), id.ReplaceAllString(real, "${1}ID")
	if _, err := time.Parse(time.RFC3339, shown); err == nil {
		_, err = time.Parse(time.RFC3339, real)
		return err == nil
	}
	parts := strings.Split(shown, more)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`(?s)^` + strings.Join(parts, ".*") + `$`).MatchString(real)
}

func jsonOf(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// TestShownAnswersAreHeldToRealOnes shows what differences finds and what it lets pass.
func TestShownAnswersAreHeldToRealOnes(t *testing.T) {
	t.Parallel()
	const real = `{"id": "job_06h0r83luto3vcfo3vgm6mugdc", "at": "2026-11-24T10:00:00Z", "run_ms": 12, "used": 0.5, "n": 3, "url": "http://80-sb06h0r83luto3vcfo3vgm6mugdc.localhost/?token=x", "list": [1, 2], "none": null}`
	for _, c := range []struct{ shown, want string }{
		{real, ""},
		{`{…}`, ""},
		{`{"n": 3, …}`, ""},
		{`{"n": …, …}`, ""},
		{`{"list": [1, …], "none": null, …}`, ""},
		{`{"id": "job_16h0r83luto3vcfo3vgm6mugdd", "at": "2025-01-01T00:00:00Z", "run_ms": 99, "used": 0.1, …}`, ""},
		{`{"id": "job_…", …}`, ""},
		{`{"url": "http://80-sb16h0r83luto3vcfo3vgm6mugdc.localhost/?token=…", …}`, ""},
		{`{"url": "http://81-sb16h0r83luto3vcfo3vgm6mugdc.localhost/?token=…", …}`, ".url is shown as"},
		{`{"id": "bld_06h0r83luto3vcfo3vgm6mugdc", …}`, ".id is shown as"},
		{`{"at": "yesterday", …}`, ".at is shown as"},
		{`{"run_ms": "12", …}`, ".run_ms is shown as"},
		{`{"n": 4, …}`, ".n is shown as"},
		{`{"n": null, …}`, ".n is shown as"},
		{`{"none": {…}, …}`, ".none is shown as"},
		{`{"list": [1], …}`, ".list is shown with 1 values"},
		{`{"list": [1, 2, 3, …], …}`, ".list is shown with 3 values"},
		{`{"gone": 1, …}`, ".gone is shown, the server does not send it"},
		{`{"id": "job_…", "at": "…", "run_ms": 1, "used": 0.1, "n": 3, "url": "…", "list": […]}`, ".none is not shown"},
	} {
		shown, err := shownAnswer(c.shown)
		check(t, err)
		var answer any
		decode(t, real, &answer)
		switch found := differences("", shown, answer); {
		case c.want == "" && len(found) > 0:
			t.Errorf("%s: %v", c.shown, found)
		case c.want != "" && (len(found) != 1 || !strings.HasPrefix(found[0], c.want)):
			t.Errorf("%s: found %q, want one that begins with %q", c.shown, found, c.want)
		}
	}
}
