package daytona

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"sandyard/jobs/kind"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/web/middleware"
	"sandyard/web/problem"
)

// mostFound is how many files or lines a search returns.
const mostFound = 10_000

// files has the routes of files.
type files struct{ *core }

func (s *files) addFiles(r routes) {
	const files = toolbox + "/:id/files"
	r.get(files, s.listFiles)
	r.remove(files, middleware.Then(http.StatusNoContent, s.removeFile))
	r.post(files+"/bulk-download", body(s.downloadMany))
	r.get(files+"/info", s.fileInfo)
	r.post(files+"/folder", middleware.Then(http.StatusCreated, s.folder))
	r.post(files+"/move", middleware.Then(http.StatusOK, s.move))
	r.post(files+"/permissions", middleware.Then(http.StatusOK, s.permissions))
	r.get(files+"/find", s.find)
	r.get(files+"/search", s.search)
	r.post(files+"/replace", body(s.replace))
}

// info is Daytona's document of a file.
type info struct {
	Name        string `json:"name"`
	Path        string `json:"path"`
	IsDir       bool   `json:"isDir"`
	Size        int64  `json:"size"`
	Mode        string `json:"mode"`
	Permissions string `json:"permissions"`
	Owner       string `json:"owner"`
	Group       string `json:"group"`
	ModTime     string `json:"modTime"`
	ModifiedAt  string `json:"modifiedAt"`
}

func infoOf(f providers.FileInfo) info {
	return info{
		Name: f.Name, Path: f.Path, IsDir: f.Type == "directory", Size: f.Size, Mode: letters(f), Permissions: f.Mode,
		Owner: f.Owner, Group: f.Group, ModTime: stamp(f.ModifiedAt), ModifiedAt: stamp(f.ModifiedAt),
	}
}

// letters are a file's type and permissions as ls writes them.
func letters(f providers.FileInfo) string {
	kind := map[string]string{"directory": "d", "symlink": "l"}[f.Type]
	if kind == "" {
		kind = "-"
	}
	bits, _ := strconv.ParseUint(f.Mode, 8, 32)
	var b strings.Builder
	b.WriteString(kind)
	for i := 8; i >= 0; i-- {
		if bits>>i&1 == 0 {
			b.WriteByte('-')
		} else {
			b.WriteByte("xwr"[i%3])
		}
	}
	return b.String()
}

// query returns a parameter that must be there.
func query(c *fiber.Ctx, name string) (string, error) {
	text := c.Query(name)
	if text == "" {
		return "", problem.Invalid("query."+name, "is missing")
	}
	return text, nil
}

// onPath does something to the path of a request.
func (s *files) onPath(c *fiber.Ctx, do func(ctx context.Context, sandboxID, path string) error) error {
	path, err := query(c, "path")
	if err != nil {
		return err
	}
	box, err := s.inside(c)
	if err != nil {
		return err
	}
	return do(c.UserContext(), box.ID, path)
}

// ask carries out a job and returns its result.
func ask[T any](ctx context.Context, s *core, sandboxID string, args kind.Args) (res T, err error) {
	job, err := s.calls.Do(ctx, sandboxID, args, models.OutputResult)
	if err == nil && len(job.Result) > 0 {
		err = json.Unmarshal(job.Result, &res)
	}
	return res, err
}

func (s *files) listFiles(c *fiber.Ctx) error {
	depth := 1
	if text := c.Query("depth"); text != "" {
		var err error
		if depth, err = strconv.Atoi(text); err != nil || depth < 1 {
			return problem.Invalid("query.depth", "must be a number, from 1")
		}
	}
	box, err := s.inside(c)
	if err != nil {
		return err
	}
	list, err := ask[kind.ListResult](c.UserContext(), s.core, box.ID, &kind.List{Path: c.Query("path"), Depth: depth})
	if err != nil {
		return err
	}
	docs := []info{}
	for _, f := range list.Entries {
		docs = append(docs, infoOf(f))
	}
	return c.JSON(docs)
}

func (s *files) fileInfo(c *fiber.Ctx) error {
	return s.onPath(c, func(ctx context.Context, sandboxID, path string) error {
		f, err := ask[providers.FileInfo](ctx, s.core, sandboxID, &kind.Stat{Path: path})
		if err != nil {
			return err
		}
		return c.JSON(infoOf(f))
	})
}

func (s *files) removeFile(c *fiber.Ctx) error {
	return s.onPath(c, func(ctx context.Context, sandboxID, path string) error {
		f, err := ask[providers.FileInfo](ctx, s.core, sandboxID, &kind.Stat{Path: path})
		if err != nil {
			return err
		}
		if f.Type == "directory" && c.Query("recursive") != "true" {
			return problem.New(
				http.StatusBadRequest,
				"invalid_request",
				"the path is a directory; send recursive=true to delete it with all that it holds",
			)
		}
		_, err = s.calls.Do(ctx, sandboxID, &kind.Remove{Path: path})
		return err
	})
}

func (s *files) folder(c *fiber.Ctx) error {
	return s.onPath(c, func(ctx context.Context, sandboxID, path string) error {
		mode := c.Query("mode")
		if _, err := strconv.ParseUint(mode, 8, 12); mode != "" && err != nil {
			return problem.Invalid("query.mode", "must be permissions in octal, such as 755")
		}
		if _, err := s.calls.Do(ctx, sandboxID, &kind.MakeDir{Path: path}); err != nil {
			return err
		}
		if mode == "" {
			return nil
		}
		return s.chmod(ctx, sandboxID, mode, path)
	})
}

func (s *files) chmod(ctx context.Context, sandboxID, mode, path string) error {
	out, err := s.script(
		ctx,
		sandboxID,
		`case "$2" in "~/"*) set -- "$1" "$HOME/${2#"~/"}" ;; esac; chmod -- "$1" "$2"`,
		"",
		mode,
		path,
	)
	if err == nil && out.code != 0 {
		err = problem.New(http.StatusBadRequest, "invalid_request", strings.TrimSpace(out.stderr))
	}
	return err
}

func (s *files) permissions(c *fiber.Ctx) error {
	return s.onPath(c, func(ctx context.Context, sandboxID, path string) error {
		mode := c.Query("mode")
		if c.Query("owner")+c.Query("group") != "" {
			return unsupported("another owner or group")
		}
		if _, err := strconv.ParseUint(mode, 8, 12); err != nil {
			return problem.Invalid("query.mode", "must be permissions in octal, such as 755")
		}
		return s.chmod(ctx, sandboxID, mode, path)
	})
}

func (s *files) move(c *fiber.Ctx) error {
	from, err := query(c, "source")
	if err != nil {
		return err
	}
	to, err := query(c, "destination")
	if err != nil {
		return err
	}
	box, err := s.inside(c)
	if err != nil {
		return err
	}
	_, err = s.calls.Do(c.UserContext(), box.ID, &kind.Move{From: from, To: to})
	return err
}

func (s *files) find(c *fiber.Ctx) error {
	pattern, err := query(c, "pattern")
	if err != nil {
		return err
	}
	return s.onPath(c, func(ctx context.Context, sandboxID, path string) error {
		found, err := ask[kind.GrepResult](
			ctx,
			s.core,
			sandboxID,
			&kind.Grep{Pattern: pattern, Fixed: true, Path: path, Hidden: true, MaxMatches: mostFound},
		)
		if err != nil {
			return err
		}
		docs := []map[string]any{}
		for _, m := range found.Matches {
			docs = append(docs, map[string]any{"file": m.Path, "line": m.Line, "content": m.Text})
		}
		return c.JSON(docs)
	})
}

func (s *files) search(c *fiber.Ctx) error {
	pattern, err := query(c, "pattern")
	if err != nil {
		return err
	}
	return s.onPath(c, func(ctx context.Context, sandboxID, path string) error {
		found, err := ask[kind.GlobResult](
			ctx,
			s.core,
			sandboxID,
			&kind.Glob{Pattern: "**/" + pattern, Path: path, Hidden: true, Limit: mostFound},
		)
		if err != nil {
			return err
		}
		files := []string{}
		for _, f := range found.Entries {
			files = append(files, f.Path)
		}
		return c.JSON(map[string]any{"files": files})
	})
}

func (s *files) replace(c *fiber.Ctx, in *struct {
	Files    []string `json:"files" required:"true"`
	Pattern  string   `json:"pattern" required:"true"`
	NewValue string   `json:"newValue" required:"true"`
},
) error {
	box, err := s.inside(c)
	if err != nil {
		return err
	}
	results := []map[string]any{}
	for _, file := range in.Files {
		edit := &kind.Edit{
			Path:  file,
			Edits: []kind.Replacement{{OldString: in.Pattern, NewString: in.NewValue, ReplaceAll: true}},
		}
		_, err := s.calls.Do(c.UserContext(), box.ID, edit)
		p := s.fault(err)
		one := map[string]any{"file": file, "success": err == nil || p.Code == string(providers.NoMatch)}
		if one["success"] == false {
			one["error"] = p.Detail
		}
		results = append(results, one)
	}
	return c.JSON(results)
}
