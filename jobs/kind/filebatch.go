package kind

import (
	"errors"
	"fmt"

	"sandyard/models"
	"sandyard/providers"
)

// WriteMany writes files, each as write does. One that cannot be written does not keep the others from it.
type WriteMany struct {
	Files []Write `json:"files" minItems:"1" maxItems:"1000"`

	pieces [][]byte // the files' bytes, when they are not written in Files any more
}

// WriteManyResult is what became of the files, in their order.
type WriteManyResult struct {
	Files  []WrittenFile `json:"files"`
	Failed int           `json:"failed" doc:"Number of files with an error"`
}

// WrittenFile is a file of a batch, or why it was not written.
type WrittenFile struct {
	Path  string              `json:"path" doc:"The path as requested"`
	File  *providers.FileInfo `json:"file,omitempty"`
	Error *models.JobError    `json:"error,omitempty"`
}

// Kind implements Args.
func (w *WriteMany) Kind() string { return "write_many" }

// Validate implements Args. A path that is wrong is an error of its file alone.
func (w *WriteMany) Validate() error {
	if len(w.Files) == 0 || len(w.Files) > providers.MaxBatch {
		return Invalid("files", "must have 1 to %d entries, not %d", providers.MaxBatch, len(w.Files))
	}
	for _, f := range w.Files {
		if _, err := ParseMode(f.Mode); err != nil {
			return Invalid("files.mode", "%q is not a file mode such as 0644", f.Mode)
		}
		if err := NoNUL("files.path", f.Path); err != nil {
			return err
		}
	}
	_, err := w.Bytes()
	return err
}

// CheckFiles is stricter than Validate: each file must have a possible path.
func CheckFiles(files []Write) error {
	for i := range files {
		var bad *InvalidError
		if err := files[i].Validate(); errors.As(err, &bad) {
			return Invalid(fmt.Sprintf("files[%d].%s", i, bad.Field), "%s", bad.Message)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// Bytes are the contents of the files.
func (w *WriteMany) Bytes() ([][]byte, error) {
	if w.pieces != nil {
		return w.pieces, nil
	}
	var pieces [][]byte
	for _, f := range w.Files {
		b, err := decode("files.content", f.Content, f.Encoding)
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, b)
	}
	return pieces, nil
}

// TakeBlob implements Blobs.
func (w *WriteMany) TakeBlob() ([]byte, error) {
	pieces, err := w.Bytes()
	for i := range w.Files {
		w.Files[i].Content, w.Files[i].Encoding = "", ""
	}
	return pack(pieces), err
}

func (w *WriteMany) setBlob(b []byte) { w.pieces = unpack(b, len(w.Files)) }

// ReadMany reads files. One that cannot be read does not keep the others from it.
type ReadMany struct {
	Paths []string `json:"paths" minItems:"1" maxItems:"1000"`
}

// ReadManyResult is what became of the paths, in their order. The job's document holds the files' bytes, too.
type ReadManyResult struct {
	Files  []ReadFile `json:"files"`
	Failed int        `json:"failed" doc:"Number of files with an error"`
}

// ReadFile is a file of a batch, or why it was not read. Together the files may hold 16 MiB; those for which there is
// no room left have the error too_large.
type ReadFile struct {
	Path            string           `json:"path" doc:"The path as requested"`
	Size            int              `json:"size" doc:"Bytes"`
	Content         *string          `json:"content,omitempty" doc:"Not in lists"`
	ContentEncoding string           `json:"content_encoding,omitempty" enum:"utf-8,base64" doc:"base64 if the bytes are not valid UTF-8"`
	Error           *models.JobError `json:"error,omitempty"`
}

// Kind implements Args.
func (r *ReadMany) Kind() string { return "read_many" }

// Validate implements Args.
func (r *ReadMany) Validate() error {
	if len(r.Paths) == 0 || len(r.Paths) > providers.MaxBatch {
		return Invalid("paths", "must have 1 to %d entries, not %d", providers.MaxBatch, len(r.Paths))
	}
	for _, path := range r.Paths {
		if err := NoNUL("paths", path); err != nil {
			return err
		}
	}
	return nil
}

// SplitContent gives each file of the result its bytes out of the job's content.
func (r *ReadManyResult) SplitContent(content []byte, encode func([]byte) (*string, string)) {
	for i := range r.Files {
		f := &r.Files[i]
		if f.Error != nil || f.Size > len(content) {
			continue
		}
		f.Content, f.ContentEncoding = encode(content[:f.Size])
		content = content[f.Size:]
	}
}
