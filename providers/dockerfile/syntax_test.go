package dockerfile_test

import (
	"slices"
	"strings"
	"testing"

	"sandyard/providers"
	"sandyard/providers/dockerfile"
)

// TestDocuments: what a here-document becomes: the text for the shell, a program, or a file.
func TestDocuments(t *testing.T) {
	t.Parallel()
	shell := func(text string) []string { return []string{"/bin/sh", "-c", text} }
	for text, want := range map[string][]string{
		"RUN <<EOF\necho $A\n# no comment\nEOF":         shell("echo $A\n# no comment\n"),
		"RUN <<-EOF\n\t\techo a\n\tEOF":                 shell("echo a\n"),
		"RUN cat <<A - <<'B' >f \\\n && x\na\nA\n$b\nB": shell("cat <<A - <<'B' >f  && x\na\nA\n$b\nB"),
		"SHELL [\"bash\", \"-ec\"]\nRUN <<EOF\nx\nEOF":  {"bash", "-ec", "x\n"},
		"RUN echo \"<<EOF\"":                            shell("echo \"<<EOF\""),
		"RUN [\"echo\", \"<<EOF\"]":                     {"echo", "<<EOF"},
	} {
		plan := planned(t, "FROM a\n"+text, providers.ImageConfig{}, nil)
		if got := plan.Steps[0].Argv; !slices.Equal(got, want) {
			t.Errorf("%q runs %q, want %q", text, got, want)
		}
	}
	plan := planned(t, "FROM a\nRUN <<EOF\n#!/usr/bin/env python3\nprint(1)\nEOF", providers.ImageConfig{}, nil)
	if argv := plan.Steps[0].Argv; argv[len(argv)-1] != "#!/usr/bin/env python3\nprint(1)\n" || !strings.Contains(argv[2], "mktemp") {
		t.Errorf("a document that names its interpreter: %q", argv)
	}
	if text := plan.Steps[0].Text; text != "RUN <<EOF" {
		t.Errorf("its text is %q", text)
	}
	for text, want := range map[string]string{
		"COPY <<EOF /srv/x\n$A \"b\" \\$A\nEOF":                 "srv/x=1 \"b\" $A\n",
		"COPY <<'EOF' /srv/x\n$A\nEOF":                          "srv/x=$A\n",
		"COPY --chmod=700 --chown=$A <<-a <<b /srv/\n\t1\na\nb": "srv/a=1\n 1:1 700 srv/b= 1:1 700",
		"COPY <<a sent /srv/\nx\na":                             "srv/sent=sent srv/a=x\n",
		"WORKDIR /w\nADD <<a ./\nx\na":                          "w/a=x\n",
	} {
		plan := planned(t, "FROM a\nENV A=1\n"+text, providers.ImageConfig{}, context(t, "sent"))
		if got := strings.Join(files(t, plan.Steps[len(plan.Steps)-1].Files), " "); got != want {
			t.Errorf("%q copies %q, want %q", text, got, want)
		}
	}
}

// TestSyntax: quotes, escapes and substitutions are those of other builders.
func TestSyntax(t *testing.T) {
	t.Parallel()
	on := providers.ImageConfig{Env: map[string]string{"SET": "set", "EMPTY": ""}}
	for text, want := range map[string]string{
		"ENV V=${SET:+yes}${NONE:+no}${EMPTY:+no}": "yes",
		"ENV V=${SET:-no}${NONE:-a}${EMPTY:-b}":    "setab",
		"ENV V=${EMPTY-no}${EMPTY+yes}":            "yes",
		"ENV V=${NONE:-${SET:+<$SET>}}":            "<set>",
		"ENV V='$SET' W=x":                         "$SET",
		"ENV V=\"a $SET\"\\ b":                     "a set b",
		"ENV V=\\$SET":                             "$SET",
		"ENV V a  $SET":                            "a  set",
		"# escape=`\nENV V=C:\\x`\n`$SET":          "C:\\x$SET",
		"ENV V=new W=$SET\nENV V=$W":               "set",
		"ARG V=arg\nENV V=$V":                      "arg",
		"ARG NONE\nENV V=-$NONE-":                  "--",
		"env V=lower":                              "lower",
	} {
		head := "FROM a\n"
		if directive, rest, ok := strings.Cut(text, "`\nENV"); ok {
			head, text = directive+"`\nFROM a\n", "ENV"+rest
		}
		if got := planned(t, head+text, on, nil).Config.Env["V"]; got != want {
			t.Errorf("%q gives %q, want %q", head+text, got, want)
		}
	}
	plan := planned(t, "ARG V=before\nARG W=hidden\nFROM a:$V\nARG V W=own\nARG W2=$W\nENV X=$V Y=$W2", on, nil)
	if e := plan.Config.Env; e["X"] != "before" || e["Y"] != "own" || e["V"] != "" {
		t.Errorf("arguments before FROM: %v", e)
	}
	plan = planned(t, "# escape=`\nFROM a\nUSER ${SET}\nWORKDIR /a\nRUN echo `\n  C:\\", on, nil)
	if last := plan.Steps[1]; last.Argv[2] != "echo   C:\\" || last.User != "set" || last.Dir != "/a" {
		t.Errorf("with another escape: %+v", last)
	}
}

func planned(t *testing.T, text string, on providers.ImageConfig, sent []byte) dockerfile.Plan {
	t.Helper()
	plan, err := dockerfile.Recipe{Dockerfile: text}.Plan(on, sent)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return plan
}
