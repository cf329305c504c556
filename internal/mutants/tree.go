package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// notCopied are directories that no mutant's test needs: other modules, and directories outside of any module.
var notCopied = map[string]bool{".git": true, "integration": true, "bench": true}

// copyTree copies the module at root to dir.
func copyTree(dir, root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		switch {
		case notCopied[rel] && d.IsDir():
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(to, 0o755)
		case !d.Type().IsRegular(), strings.HasPrefix(rel, "go.work"): // go.work names the other modules
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o644)
	})
}
