package cluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Write is a request of the audit log that changes something.
type Write struct {
	User, Verb                string
	Resource, Namespace, Name string
	Subresource               string
	Code                      int
	At                        time.Time
}

// String is one line.
func (w Write) String() string {
	return fmt.Sprintf("%s %s %s/%s %s %d", w.User, w.Verb, w.Resource, w.Subresource, w.Namespace+"/"+w.Name, w.Code)
}

type auditEvent struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef *struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	StageTimestamp time.Time `json:"stageTimestamp"`
}

// Audit reads on in an API server's audit log.
type Audit struct {
	path   string
	offset int64
}

// AuditFrom begins at the log's present end.
func AuditFrom(path string) (*Audit, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return &Audit{path: path, offset: info.Size()}, nil
}

// Writes returns the writes by a user since the last call, oldest first.
func (a *Audit) Writes(user string) ([]Write, error) {
	file, err := os.Open(a.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	// A log that was turned over begins anew.
	if info, err := file.Stat(); err == nil && info.Size() < a.offset {
		a.offset = 0
	}
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return nil, err
	}
	var out []Write
	lines := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil // the rest of a line comes later
		} else if err != nil {
			return out, err
		}
		a.offset += int64(len(line))
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return out, fmt.Errorf("audit log at byte %d: %w", a.offset, err)
		}
		switch e.Verb {
		case "get", "list", "watch":
			continue
		}
		if e.User.Username != user || e.ObjectRef == nil {
			continue
		}
		out = append(out, Write{
			User: e.User.Username, Verb: e.Verb, Resource: e.ObjectRef.Resource, Namespace: e.ObjectRef.Namespace,
			Name: e.ObjectRef.Name, Subresource: e.ObjectRef.Subresource, Code: e.ResponseStatus.Code, At: e.StageTimestamp,
		})
	}
}
