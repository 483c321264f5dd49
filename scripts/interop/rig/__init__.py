"""The rig: network namespaces, the processes in them, and the cases played there."""
