package v1

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"time"

	"sandyard/jobs"
	"sandyard/models"
	"sandyard/providers"
	"sandyard/providers/dockerfile"
	"sandyard/web/middleware"
	"sandyard/web/problem"
	"sandyard/web/rest"
)

// BuildBody says how a template's image is to be made.
type BuildBody struct {
	Dockerfile     string      `json:"dockerfile,omitempty" maxLength:"262144" doc:"One stage, at most 200 steps, without mounts and downloads. The steps run as root in a container without a network. Limits: 32 KiB per text after variable expansion, 128 KiB for ENV and ARG together. Copied files: 16 MiB, or four times the size of the files if that is more"`
	Script         string      `json:"script,omitempty" maxLength:"262144" doc:"Or a setup script for the base image, run as root by bash -e (sh -e without bash); the files are in its working directory"`
	From           string      `json:"from,omitempty" maxLength:"512" doc:"The base image of a script; default the default template's. The image rules of new sandboxes apply"`
	Image          string      `json:"image,omitempty" maxLength:"512" doc:"Or an existing image, which is tested and then used"`
	Files          []BuildFile `json:"files,omitempty" maxItems:"1000" doc:"Files for COPY in a Dockerfile or for the script"`
	ContextTar     string      `json:"context_tar,omitempty" doc:"Or the files as a base64-encoded tar: at most 10000 regular files and directories, no sparse files"`
	Shared         bool        `json:"shared,omitempty" doc:"Build for the shared template of this name; requires a key with the scope operator"`
	TimeoutSeconds float64     `json:"timeout_seconds,omitempty" doc:"The build is stopped after this time; default 600, at most 3600"`
	CPUs           float64     `json:"cpus,omitempty" doc:"Cores of the build; default 1"`
	MemoryMB       int64       `json:"memory_mb,omitempty" doc:"Memory of the build; default 1024"`
	DiskMB         int64       `json:"disk_mb,omitempty" doc:"Most that the build may add to the base image; every file counts at least 4 KB; default 4096, at most BUILD_DISK_MB of the server"`
	Submit
}

// BuildFile is one file of a build.
type BuildFile struct {
	Path     string `json:"path" maxLength:"1024"`
	Content  string `json:"content"`
	Encoding string `json:"encoding,omitempty" enum:"utf-8,base64" doc:"Encoding of content in this request; default utf-8"`
	Mode     int64  `json:"mode,omitempty" minimum:"0" maximum:"511" doc:"Permissions as a number, such as 493 for 0755; default 0644"`
}

// Build is the document of a build.
type Build struct {
	ID         string           `json:"id"`
	Template   string           `json:"template"`
	Shared     bool             `json:"shared"`
	Image      string           `json:"image" doc:"The image that the build creates"`
	State      string           `json:"state" enum:"queued,running,succeeded,failed,timed_out,cancelled,lost,expired" doc:"State of the build's job. The template keeps its old image until the build succeeds"`
	Error      *models.JobError `json:"error,omitempty" doc:"Why the build failed, with the failed step"`
	JobID      string           `json:"job_id"`
	SandboxID  string           `json:"sandbox_id" doc:"The build's own sandbox; it ends with the build"`
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
	rest.PageParams
}

const buildPath = "/v1/templates/{name}/builds/{id}"

// templates has the routes of templates and the builds of their images.
type templates struct{ *core }

func (s *templates) addBuilds() {
	op := rest.Operation("build-template", "POST /v1/templates/{name}/builds", tagTemplates,
		"Build an image for a template")
	op.Description = "Builds from a Dockerfile, a setup script or an existing image. The build is a job in its own " +
		"sandbox. When it " +
		"has succeeded and a test sandbox has started from the image, the template gets the new image; a missing template " +
		"is created. " +
		"If the build fails, the template keeps the old image. The job's result names the build; its log is at " +
		"/v1/templates/{name}/builds/{id}/log."
	write(s.core, op, s.buildTemplate)
	rest.Route(s.api, "list-builds", "GET /v1/templates/{name}/builds", tagTemplates,
		"List a template's builds, newest first", s.listBuilds)
	rest.Route(s.api, "get-build", "GET "+buildPath, tagTemplates, "Get a build", s.getBuild)
	rest.Route(s.api, "cancel-build", "POST "+buildPath+"/cancel", tagTemplates, "Cancel a build", s.cancelBuild)
	(&logs{s.core}).addBuildLog()
}

func (s *templates) buildTemplate(ctx context.Context, in *newBuildInput) (*acceptedOutput, error) {
	b := in.Body
	if _, err := owner(ctx, b.Shared); err != nil {
		return nil, err
	}
	files, err := b.archive()
	if err != nil {
		return nil, err
	}
	return s.submit(ctx, in.SubmitParams, b.Submit, func(o jobs.Options) (models.Submitted, error) {
		return s.Jobs.Build(ctx, jobs.NewBuild{
			Template: in.Name, Shared: b.Shared, Files: files, TimeoutSeconds: b.TimeoutSeconds,
			Recipe:    dockerfile.Recipe{Dockerfile: b.Dockerfile, Script: b.Script, From: b.From, Image: b.Image},
			Resources: providers.Resources{CPUs: b.CPUs, MemoryMB: b.MemoryMB, DiskMB: b.DiskMB},
		}, o)
	})
}

// archive is the build's files as a tar.
func (b BuildBody) archive() ([]byte, error) {
	if b.ContextTar != "" {
		if len(b.Files) > 0 {
			return nil, problem.Invalid("body.context_tar", "give either files or context_tar")
		}
		archive, err := base64.StdEncoding.DecodeString(b.ContextTar)
		if err != nil {
			return nil, problem.Invalid("body.context_tar", "is not base64")
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
				return nil, problem.Invalid("body.files", f.Path+" is not base64")
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
			return nil, problem.Invalid("body.files", f.Path+": "+err.Error())
		}
	}
	return buf.Bytes(), w.Close()
}

// build finds a build of the request's tenant with its job.
func (s *core) build(ctx context.Context, template, id string) (models.Build, models.Job, error) {
	b, err := s.Store.Build(ctx, id)
	if err == nil && (b.TenantID != middleware.RequestOf(ctx).Tenant || b.Template != template) {
		err = models.ErrNotFound
	}
	if err != nil {
		return b, models.Job{}, err
	}
	j, err := s.Store.Job(ctx, b.TenantID, b.JobID)
	return b, j, err
}

func buildDoc(b models.Build, j models.Job) Build {
	return Build{
		ID: b.ID, Template: b.Template, Shared: b.Shared, Image: b.Image, State: string(j.State), Error: j.Error,
		JobID:     b.JobID,
		SandboxID: b.SandboxID, CreatedAt: b.CreatedAt, FinishedAt: j.FinishedAt,
	}
}

func (s *templates) getBuild(ctx context.Context, in *buildInput) (*rest.Output[Build], error) {
	b, j, err := s.build(ctx, in.Name, in.ID)
	return rest.OK(buildDoc(b, j)), err
}

func (s *templates) cancelBuild(ctx context.Context, in *buildInput) (*rest.Output[Build], error) {
	b, _, err := s.build(ctx, in.Name, in.ID)
	if err != nil {
		return nil, err
	}
	j, err := s.Jobs.Cancel(ctx, b.TenantID, b.JobID, middleware.RequestOf(ctx).Actor())
	return rest.OK(buildDoc(b, j)), err
}

func (s *templates) listBuilds(ctx context.Context, in *listBuildsInput) (*rest.Output[BuildPage], error) {
	tenant := middleware.RequestOf(ctx).Tenant
	list, err := s.Store.Builds(ctx, tenant, in.Name, in.Cursor, in.Limit+1)
	if err != nil {
		return nil, err
	}
	page := BuildPage{Builds: []Build{}}
	list, page.NextCursor = rest.CutPage(list, in.Limit, func(b models.Build) string { return b.ID })
	for _, b := range list {
		j, err := s.Store.Job(ctx, tenant, b.JobID)
		if err != nil && !errors.Is(err, models.ErrNotFound) {
			return nil, err
		}
		page.Builds = append(page.Builds, buildDoc(b, j))
	}
	return rest.OK(page), nil
}
