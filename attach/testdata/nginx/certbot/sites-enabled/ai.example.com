server {
	server_name ai.example.com;
	access_log /var/log/nginx/ai.log;
	root /var/www/ai;
	location / {
		try_files $uri $uri/ =404;
	}
	location /v1 {
		include snippets/proxy.conf;
		auth_basic "LLM";
		auth_basic_user_file htpasswd;
		proxy_pass http://inference/v1;
		proxy_buffering off;
	}

    listen @front@ ssl; # managed by Certbot
    ssl_certificate cert.pem; # managed by Certbot
    ssl_certificate_key cert.pem; # managed by Certbot
}
server {
    if ($host = ai.example.com) {
        return 301 https://$host$request_uri;
    } # managed by Certbot

	listen @front2@;
	server_name ai.example.com;
    return 404; # managed by Certbot
}
