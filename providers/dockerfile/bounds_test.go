package dockerfile_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"sandyard/providers"
	"sandyard/providers/dockerfile"
)

// entry is one of a tar.
type entry struct {
	tar.Header
	data []byte
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		e.Size = int64(len(e.data))
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func regular(name string, size int) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, make([]byte, size)}
}

// retyped makes another kind of entry of the header that stands at an offset, and writes at offsets of that header.
func retyped(all []byte, at int, kind byte, fields map[int]string) []byte {
	head := all[at : at+512]
	head[156] = kind
	for offset, text := range fields {
		copy(head[offset:], text)
	}
	copy(head[148:156], "        ")
	sum := 0
	for _, b := range head {
		sum += int(b)
	}
	copy(head[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return all
}

const sparseSize = 256 << 20

// sparsePAX is a tar of some kilobytes with a file of sparseSize bytes, as GNU tar writes it by itself.
func sparsePAX(t testing.TB) []byte {
	t.Helper()
	var records bytes.Buffer
	for _, r := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=big", fmt.Sprintf("GNU.sparse.realsize=%d", sparseSize)} {
		fmt.Fprintf(&records, "%d %s\n", len(r)+4, r)
	}
	says := regular("PaxHeaders/big", 0)
	says.data = records.Bytes()
	content := regular("GNUSparseFile/big", 512)
	copy(content.data, fmt.Sprintf("1\n%d\n0\n", sparseSize))
	return retyped(archive(t, says, content), 0, tar.TypeXHeader, nil)
}

// sparseGNU is the same as old versions of GNU tar write it.
func sparseGNU(t testing.TB) []byte {
	t.Helper()
	e := regular("big", 0)
	e.Format = tar.FormatGNU
	return retyped(archive(t, e), 0, tar.TypeGNUSparse, map[int]string{483: fmt.Sprintf("%011o\x00", sparseSize)})
}

func TestContextsThatGrowAreRefused(t *testing.T) {
	t.Parallel()
	many, deep := []entry{}, []entry{}
	for n := range 10_001 {
		many = append(many, regular(fmt.Sprint(n%3), 0))
	}
	for n := range 21 {
		deep = append(deep, regular(fmt.Sprint(n)+strings.Repeat("/d", 500), 0))
	}
	long := regular(strings.Repeat("n", 1025), 0)
	told := regular("told", 0)
	told.PAXRecords = map[string]string{"SCHILY.xattr.user.note": strings.Repeat("x", 65<<10)}
	torn := archive(t, regular("torn", 4096))[:1024]
	claims := retyped(archive(t, regular("claims", 0)), 0, tar.TypeReg, map[int]string{124: fmt.Sprintf("%011o\x00", 1<<32)})
	for says, context := range map[string][]byte{
		"sparse file; create": sparsePAX(t), "as a sparse file": sparseGNU(t), "more than 10000 files": archive(t, many...),
		"more than 10000 directories": archive(t, deep...), "a name of more than 1024 bytes": archive(t, long), "extended attributes": archive(t, told),
		"is not a tar": claims, "unexpected EOF": torn,
	} {
		err := dockerfile.Recipe{Script: "x"}.Check(context)
		if err == nil || !strings.Contains(err.Error(), says) || len(err.Error()) > 500 {
			t.Errorf("a context of %d bytes: %v, want %q", len(context), err, says)
		}
	}
}

// doubling is a few lines whose last text is of many megabytes.
func doubling(instruction string) string {
	return instruction + " A=0123456789\n" + strings.Repeat(instruction+" A=$A$A\n", 22)
}

func TestDockerfilesThatGrowAreRefused(t *testing.T) {
	t.Parallel()
	big := archive(t, regular("big", 1<<20))
	dirs, names := []entry{}, []entry{}
	for n := range 500 {
		dirs = append(dirs, entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprintf("dirs/%d", n), Mode: 0o755}})
		names = append(names, regular(fmt.Sprintf("%s%d", strings.Repeat("n", 200), n), 0))
	}
	empty, wild := archive(t, dirs...), archive(t, names...)
	value := strings.Repeat("v", 30<<10)
	var set strings.Builder
	for n := range 1001 {
		fmt.Fprintf(&set, "A%d=x ", n)
	}
	for _, c := range []struct {
		text, says string
		context    []byte
	}{
		{doubling("ARG") + "FROM a", "longer than 32 KiB", nil},
		{"FROM a\n" + doubling("ENV"), "longer than 32 KiB", nil},
		{"FROM a\n" + doubling("ARG"), "longer than 32 KiB", nil},
		{"FROM a\nARG A=" + value + "\nENV A=${A:-$A$A}${A}", "longer than 32 KiB", nil},
		{"FROM a\nENV A=" + value + " B=" + value + "\nARG C=" + value + "\nARG D=" + value + "\nENV E=" + value, "128 KiB", nil},
		{"FROM a\nENV A=" + value + strings.Repeat("\nLABEL l=$A", 150), "longer than 4 MiB", nil},
		{"FROM a\nENV A=" + value + "\nLABEL a=$A b=$A c=$A d=$A e=$A", "128 KiB", nil},
		{"FROM a\nENV " + set.String(), "more than 1000 names", nil},
		{"FROM a\nLABEL " + set.String(), "more than 1000 names", nil},
		{"FROM a" + strings.Repeat("\nRUN x", 201), "more than 200 steps", nil},
		{"FROM a" + strings.Repeat("\nWORKDIR "+strings.Repeat("d", 1000), 5), "longer than 4096 bytes", nil},
		{"FROM a" + strings.Repeat("\nWORKDIR /"+strings.Repeat("d/", 2000), 9), "fill more than 16777216 bytes", nil},
		{"FROM a\nSHELL [" + strings.Repeat(`"",`, 40) + `""]`, "at most 32 words", nil},
		{"FROM " + strings.Repeat("a", 513), "longer than 512 bytes", nil},
		{"FROM a\n" + strings.Repeat("X", 200<<10), "line greater than max", nil},
		{"FROM a\n" + strings.Repeat("X\\\n", 80<<10), "is not supported", nil},
		{"FROM a\nRUN <<x " + strings.Repeat("${a-\\\n", 40<<10) + "\nx", "too many substitutions", nil},
		{"FROM a\nRUN <<x " + strings.Repeat("$\\\n#\n{a-", 20<<10) + "\nx", "too many substitutions", nil},
		{"FROM a\nENV A=" + strings.Repeat("${a-", 101) + strings.Repeat("}", 101), "more than 100 substitutions", nil},
		{
			"FROM a\nENV S=x A=" + value + strings.Repeat("\nENV B="+strings.Repeat("${S-", 99)+"$A$A$A"+strings.Repeat("}", 99), 7),
			"nest them less", nil,
		},
		{"FROM a\nENV A=" + value + "\nENV B=x" + strings.Repeat("${A:+}", 5), "longer than 32 KiB", nil},
		{"FROM a\nRUN <<EOF\n" + strings.Repeat("echo 0123456789\n", 9<<10) + "EOF", "longer than 127 KiB", nil},
		{"FROM a\nCOPY <<EOF /x\n" + strings.Repeat("0123456789\n", 9<<10) + "EOF", "longer than 32 KiB", nil},
		{"FROM a" + strings.Repeat("\nCOPY <<a <<a <<a <<a /x/\na\na\na\na", 201), "more than 200 steps", nil},
		{"FROM a\nCOPY big /" + strings.Repeat("d", 4096), "longer than 4096 bytes", big},
		{"FROM a" + strings.Repeat("\nCOPY big /x", 17), "copy each file once", big},
		{"FROM a\nCOPY " + strings.Repeat("big ", 17) + "/x/", "copy each file once", big},
		{"FROM a\nCOPY " + strings.Repeat("dirs ", 1000) + "/x/", "copy each file once", empty},
		{"FROM a\nCOPY *" + strings.Repeat("n*", 100) + "x /x/", "not among the files", wild},
		{"FROM a" + strings.Repeat("\nCOPY n*"+strings.Repeat("n*", 100)+"1 /x/", 20), "wildcards take too long", wild},
	} {
		err := dockerfile.Recipe{Dockerfile: c.text}.Check(c.context)
		if err == nil || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 600 {
			t.Errorf("%d bytes, %.60q…: %v, want %q", len(c.text), c.text, err, c.says)
		}
	}
}

// TestLargeRecipesAreTaken shows that the bounds leave room for what people build.
// TestPatternsAreRefused: a pattern is compiled for each substitution that has one, also of the variable without a name.
func TestPatternsAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"${A#x}", "${A%%x}", "${A/x/y}", "${%x}", "${#x}", "${/x/y}", "${:?x}", "${A:?x}"} {
		_, err := dockerfile.Recipe{Dockerfile: "FROM x\nENV A=b\nLABEL l=" + text}.Plan(providers.ImageConfig{}, nil)
		if err == nil || !strings.Contains(err.Error(), "not supported") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestLargeRecipesAreTaken(t *testing.T) {
	t.Parallel()
	tree := []entry{}
	for n := range 2000 {
		tree = append(tree, regular(fmt.Sprintf("node_modules/package-%d/lib/file%d.js", n%200, n), 300))
	}
	text := "FROM a\nENV PATH=/opt/bin:$PATH A=" + strings.Repeat("v", 20<<10) + "\nCOPY . /src\nCOPY node_modules/*/lib/*1.js /some/\nWORKDIR /src\n" +
		strings.Repeat("ENV B=$A\nRUN make\n", 150) + "COPY node_modules /again"
	r := dockerfile.Recipe{Dockerfile: text}
	context := archive(t, tree...)
	if err := r.Check(context); err != nil {
		t.Fatal(err)
	}
	plan, err := r.Plan(providers.ImageConfig{Env: map[string]string{"PATH": "/bin"}}, context)
	if err != nil || len(plan.Steps) != 154 || len(files(t, plan.Steps[0].Files)) != 2000 || len(files(t, plan.Steps[1].Files)) != 200 {
		t.Errorf("%d steps, %v", len(plan.Steps), err)
	}
}

// within fails where a plan is larger than what its recipe may grow to.
func within(t *testing.T, plan providers.ImageConfig, steps []providers.Step, labels map[string]string, context int) {
	t.Helper()
	pairs := func(of map[string]string) (bytes int) {
		for name, value := range of {
			bytes += len(name) + len(value)
		}
		return bytes
	}
	unpacked := 0
	for _, s := range steps {
		unpacked += len(s.Files)
		if n := pairs(s.Env); n > 128<<10 {
			t.Errorf("the environment of a step has %d bytes", n)
		}
	}
	if most := max(16<<20, 4*context); len(steps) > 200 || unpacked > most || pairs(plan.Env) > 128<<10 || pairs(labels) > 128<<10 {
		t.Errorf("%d steps unpack %d bytes, %d bytes of environment, %d of labels", len(steps), unpacked, pairs(plan.Env), pairs(labels))
	}
}

func FuzzDockerfile(f *testing.F) {
	f.Add("FROM a\nRUN x \\\n y\nENV A=${B:-c} D='e'\nCOPY [\"a\", \"b\"]")
	f.Add("FROM a\nENV A=0123456789\nENV A=$A$A\nARG B=${A:-$A$A}\nWORKDIR $A\nLABEL l=\"$A\"\nCOPY a* d/ /to/\nSHELL [\"sh\"]")
	f.Add("# escape=`\nFROM a\nRUN <<A <<-'B' `\n cat\nx\nA\n\ty\nB\nCOPY <<a <<b /to/\n${A:+x}\na\nb\nONBUILD RUN <<x\nx")
	f.Add("ARG A=b\nARG A=$A$A\nFROM $A\nENV []\nCOPY . .\nUSER ${A")
	context := archive(f, regular("a", 1000), regular("ab", 10), regular("d/e/f", 2000))
	f.Fuzz(func(t *testing.T, text string) {
		r := dockerfile.Recipe{Dockerfile: text}
		if err := r.Check(context); err != nil {
			if len(err.Error()) > 600 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		plan, err := r.Plan(providers.ImageConfig{}, context)
		if err != nil {
			t.Fatalf("checked, and then %v", err)
		}
		within(t, plan.Config, plan.Steps, plan.Labels, len(context))
	})
}

func FuzzContext(f *testing.F) {
	f.Add(archive(f, regular("a", 10), regular("b/c", 600)))
	f.Add(sparsePAX(f))
	f.Add(sparseGNU(f))
	f.Fuzz(func(t *testing.T, context []byte) {
		plan, err := dockerfile.Recipe{Script: "x"}.Plan(providers.ImageConfig{}, context)
		if err == nil {
			within(t, plan.Config, plan.Steps, plan.Labels, len(context))
		}
	})
}
