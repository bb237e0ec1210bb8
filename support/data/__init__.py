"""The data of the course: real sets from their homes, checked, and the embedded ones."""
