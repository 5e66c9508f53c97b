package web

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/recipe"
)

// BuildBody says how a template's image is to be made.
type BuildBody struct {
	Dockerfile     string      `json:"dockerfile,omitempty" maxLength:"262144" doc:"One stage, without mounts and downloads. Its steps, at most 200, run as root of a container without a network. Texts have at most 32 KiB with their variables put in, ENV and ARG together 128 KiB; what the steps copy has 16 MiB, or four times the bytes of the files"`
	Script         string      `json:"script,omitempty" maxLength:"262144" doc:"Or a script that sets the base image up, run as root by bash -e (sh -e where there is no bash); it finds the files in its directory"`
	From           string      `json:"from,omitempty" maxLength:"512" doc:"The image that a script runs on; default the default template's. As in a new sandbox, it is one that you may use"`
	Image          string      `json:"image,omitempty" maxLength:"512" doc:"Or an image that stands already, which is tried and then taken"`
	Files          []BuildFile `json:"files,omitempty" maxItems:"1000" doc:"What a Dockerfile may COPY and a script finds"`
	ContextTar     string      `json:"context_tar,omitempty" doc:"Or the same as a tar, in base64: at most 10000 regular files and directories, none of them sparse"`
	Shared         bool        `json:"shared,omitempty" doc:"For the shared template of this name; takes a key with the scope operator"`
	TimeoutSeconds float64     `json:"timeout_seconds,omitempty" doc:"The build is given up after that; default 600, at most 3600"`
	CPUs           float64     `json:"cpus,omitempty" doc:"While it builds; default 1"`
	MemoryMB       int64       `json:"memory_mb,omitempty" doc:"While it builds; default 1024"`
	DiskMB         int64       `json:"disk_mb,omitempty" doc:"What it may add to the base image, where every file counts as 4 KB at least; default 4096, at most what the server allows (BUILD_DISK_MB)"`
	Submit
}

// BuildFile is one file of a build.
type BuildFile struct {
	Path     string `json:"path" maxLength:"1024"`
	Content  string `json:"content"`
	Encoding string `json:"encoding,omitempty" enum:"utf-8,base64" doc:"How content is written here; default utf-8"`
	Mode     int64  `json:"mode,omitempty" minimum:"0" maximum:"511" doc:"Permissions as a number, such as 493 for 0755; default 0644"`
}

// Build is the document of a build.
type Build struct {
	ID         string           `json:"id"`
	Template   string           `json:"template"`
	Shared     bool             `json:"shared"`
	Image      string           `json:"image" doc:"What it makes"`
	State      string           `json:"state" enum:"queued,running,succeeded,failed,timed_out,cancelled,lost,expired" doc:"Of its job. The template has its old image until the build has succeeded"`
	Error      *models.JobError `json:"error,omitempty" doc:"Why it did not succeed, with the step that failed"`
	JobID      string           `json:"job_id"`
	SandboxID  string           `json:"sandbox_id" doc:"Where it is built; ends with the build"`
	CreatedAt  time.Time        `json:"created_at"`
	FinishedAt *time.Time       `json:"finished_at,omitempty"`
}

// BuildPage is one page of a list of builds.
type BuildPage struct {
	Builds     []Build `json:"builds"`
	NextCursor string  `json:"next_cursor,omitempty" doc:"Absent on the last page"`
}

type newBuildInput struct {
	SubmitParams
	Name string `path:"name"`
	Body BuildBody
}

type buildInput struct {
	Name string `path:"name"`
	ID   string `path:"id"`
}

type listBuildsInput struct {
	Name string `path:"name"`
	PageParams
}

const buildPath = "/v1/templates/{name}/builds/{id}"

func (s *Server) addBuilds() {
	op := operation("build-template", http.MethodPost, "/v1/templates/{name}/builds", tagTemplates, "Build an image for a template")
	op.Description = "From a Dockerfile, a setup script or an image's name. The build is a job in a sandbox of its own. When it has " +
		"succeeded and a sandbox has come up from the image, the template, which is made if there is none, has the new image; until " +
		"then and if it fails it keeps the old one. The job's result names the build; its log is at /v1/templates/{name}/builds/{id}/log."
	write(s, op, s.buildTemplate)
	register(s, operation("list-builds", http.MethodGet, "/v1/templates/{name}/builds", tagTemplates, "List a template's builds, newest first"), s.listBuilds)
	register(s, operation("get-build", http.MethodGet, buildPath, tagTemplates, "Get a build"), s.getBuild)
	register(s, operation("cancel-build", http.MethodPost, buildPath+"/cancel", tagTemplates, "Cancel a build"), s.cancelBuild)
	s.addBuildLog()
}

func (s *Server) buildTemplate(ctx context.Context, in *newBuildInput) (*acceptedOutput, error) {
	b := in.Body
	if _, err := owner(ctx, b.Shared); err != nil {
		return nil, err
	}
	files, err := b.archive()
	if err != nil {
		return nil, err
	}
	return s.submit(ctx, in.SubmitParams, b.Submit, func(o jobs.Options) (models.Submitted, error) {
		return s.jobs.Build(ctx, jobs.NewBuild{
			Template: in.Name, Shared: b.Shared, Files: files, TimeoutSeconds: b.TimeoutSeconds,
			Recipe:    recipe.Recipe{Dockerfile: b.Dockerfile, Script: b.Script, From: b.From, Image: b.Image},
			Resources: providers.Resources{CPUs: b.CPUs, MemoryMB: b.MemoryMB, DiskMB: b.DiskMB},
		}, o)
	})
}

// archive is the build's files as a tar.
func (b BuildBody) archive() ([]byte, error) {
	if b.ContextTar != "" {
		if len(b.Files) > 0 {
			return nil, invalidAt("body.context_tar", "give either files or context_tar")
		}
		archive, err := base64.StdEncoding.DecodeString(b.ContextTar)
		if err != nil {
			return nil, invalidAt("body.context_tar", "is not base64")
		}
		return archive, nil
	}
	if len(b.Files) == 0 {
		return nil, nil
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range b.Files {
		data := []byte(f.Content)
		if f.Encoding == "base64" {
			var err error
			if data, err = base64.StdEncoding.DecodeString(f.Content); err != nil {
				return nil, invalidAt("body.files", f.Path+" is not base64")
			}
		}
		mode := f.Mode
		if mode == 0 {
			mode = 0o644
		}
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: mode, Size: int64(len(data))})
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			return nil, invalidAt("body.files", f.Path+": "+err.Error())
		}
	}
	return buf.Bytes(), w.Close()
}

// build finds a build of the request's tenant with its job.
func (s *Server) build(ctx context.Context, template, id string) (models.Build, models.Job, error) {
	b, err := s.store.Build(ctx, id)
	if err == nil && (b.TenantID != requestOf(ctx).tenant || b.Template != template) {
		err = models.ErrNotFound
	}
	if err != nil {
		return b, models.Job{}, err
	}
	j, err := s.store.Job(ctx, b.TenantID, b.JobID)
	return b, j, err
}

func buildDoc(b models.Build, j models.Job) Build {
	return Build{
		ID: b.ID, Template: b.Template, Shared: b.Shared, Image: b.Image, State: string(j.State), Error: j.Error, JobID: b.JobID,
		SandboxID: b.SandboxID, CreatedAt: b.CreatedAt, FinishedAt: j.FinishedAt,
	}
}

func (s *Server) getBuild(ctx context.Context, in *buildInput) (*output[Build], error) {
	b, j, err := s.build(ctx, in.Name, in.ID)
	return &output[Build]{buildDoc(b, j)}, err
}

func (s *Server) cancelBuild(ctx context.Context, in *buildInput) (*output[Build], error) {
	b, _, err := s.build(ctx, in.Name, in.ID)
	if err != nil {
		return nil, err
	}
	j, err := s.jobs.Cancel(ctx, b.TenantID, b.JobID, requestOf(ctx).key)
	return &output[Build]{buildDoc(b, j)}, err
}

func (s *Server) listBuilds(ctx context.Context, in *listBuildsInput) (*output[BuildPage], error) {
	tenant := requestOf(ctx).tenant
	list, err := s.store.Builds(ctx, tenant, in.Name, in.Cursor, in.Limit+1)
	if err != nil {
		return nil, err
	}
	page := BuildPage{Builds: []Build{}}
	if len(list) > in.Limit {
		list = list[:in.Limit]
		page.NextCursor = list[in.Limit-1].ID
	}
	for _, b := range list {
		j, err := s.store.Job(ctx, tenant, b.JobID)
		if err != nil && !errors.Is(err, models.ErrNotFound) {
			return nil, err
		}
		page.Builds = append(page.Builds, buildDoc(b, j))
	}
	return &output[BuildPage]{page}, nil
}
